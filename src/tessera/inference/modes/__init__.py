"""How a network is put to work: as fast as it goes, one question at a time, or as questions happen to arrive."""
