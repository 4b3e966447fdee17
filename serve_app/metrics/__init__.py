"""What operators watch: metrics for Prometheus. `names` is the table of all of them."""
