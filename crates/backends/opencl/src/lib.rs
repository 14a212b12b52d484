//! OpenCL as a driver of the GPU layer.
