"""HTTP/1.1: requests of devices and clients, and the notifications a middleware sends back."""
