//! libtorch against its declaration and against the reference, its tracer against planted
//! fallbacks.

mod agreement;
mod basics;
mod process;
mod support;
