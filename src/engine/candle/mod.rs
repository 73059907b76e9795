//! candle on `cpu`, `cuda` and `metal`: one adapter, another `Device` value.
//!
//! Answers: what does a user of candle get when their model runs this operator? Each
//! operator is mapped to the function of `candle-nn` or the method of `Tensor` that such a
//! user calls, with its defects: half-precision accumulation, gradients that are wrong at
//! ties, losses that overflow. Those are what a parity check is for. Only what is *absent*
//! is replaced, by a decomposition with a name that every row of the table carries.
//!
//! Three properties of candle shape the code:
//!
//! * its gradient store keeps variables only, so that leaves are `Var`s, and an
//!   intermediate value becomes observable by adding a `Var` of negative zeros to it
//!   (`x + −0` is `x` for every `x`, `−0` and NaN included);
//! * several kernels have no gradient and drop it *silently* (fused layer norm, RMS norm,
//!   softmax, attention). [`KernelSet::Default`] uses their differentiable siblings always,
//!   [`KernelSet::Fused`] uses the fast ones and declares that no gradient exists;
//! * some operators have a forward but no backward for some attributes (pooling with
//!   overlapping windows, bilinear resizing). Without gradients the native kernel runs; on
//!   the training path (an input is tracked) a decomposition does. The losing option, the
//!   decomposition always, would never check the kernel that inference runs.
//!
//! A family of operators is one file with `supports` and `apply`; both read the same
//! `situation::Situation`, so that what is declared is what is done.

mod attention;
mod conv;
mod dispatch;
mod index;
mod linalg;
mod loss;
mod norm;
mod open;
mod pointwise;
mod pool;
mod reduce;
mod run;
mod shape;
mod situation;
mod transfer;
mod upsample;
mod window;

#[cfg(test)]
mod tests;

pub use open::{CandleEngine, KernelSet, VERSION};
