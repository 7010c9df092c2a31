// Temporal's server, built from its module: its dependencies are many, and are kept apart from the benchmark's.
module perdure/bench/temporal

go 1.26.0
