"""Every pixel and gradient of a cut convolution against the uncut one."""
