"""Where it runs: engines, processes, devices and hosts."""
