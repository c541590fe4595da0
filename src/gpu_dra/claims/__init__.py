"""Claims from allocation to prepared devices and back; knows nothing of gRPC."""
