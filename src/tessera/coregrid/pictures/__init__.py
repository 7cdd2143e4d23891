"""Plans as pictures: shards and their halos, the memory of a core, its timeline; SVG, a page, a trace."""
