"""Development tools: the test bed, the local cluster and generators. Not part of the product."""
