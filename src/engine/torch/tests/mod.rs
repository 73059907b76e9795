//! libtorch against its declaration and against the reference, its tracer against planted
//! fallbacks.

mod agreement;
mod basics;
mod planted;
mod process;
mod support;
