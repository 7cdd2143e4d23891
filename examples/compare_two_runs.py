"""Run a case twice, and test whether the second run is slower."""

import tessera

if __name__ == "__main__":
    cases = tessera.cases("ops", names=["add"], size=["small"], passes=["forward"])
    before, after = (tessera.run(cases, launches=4, budget=0.1, store=":memory:") for _ in range(2))
    print(tessera.compare(before, after))
