//! libtorch against its declaration and against the reference, its tracer against planted
//! fallbacks.

mod agreement;
mod basics;
mod models;
mod planted;
mod process;
mod support;
