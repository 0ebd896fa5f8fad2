"""A protocol whose parties hide each other in small groups, and a statistic: an example of a distribution of one's own."""
