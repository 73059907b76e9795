//! How far plain rounding moves the result of one operator call: the local floor.
//!
//! Answers: given an operator, its inputs as the dtype holds them and the incoming gradients,
//! what are results and gradients exactly, and what standard deviation may each element have
//! in a correct engine? A correct engine computes in the accumulator's format and rounds
//! each result once to the format it is stored in. For element i
//!
//! ```text
//! sigma_i = (eta − c_store·u_store)·max(|v_i|, s_i) + c_store·u_store·(|v_i| + d_i)
//! ```
//!
//! with eta from the error model by role, inner length and format. s is the root of the sum
//! of the squares of the *terms* that an element is made of: where terms cancel, the error is
//! theirs. d is what the rounding of a stored result does to a gradient that is written in
//! that result (softmax, tanh). The floor of a tensor is the norm of its sigma.
//!
//! Terms of multilinear operators come from the reference itself, applied to the squares of
//! inputs and incoming gradients (`linear`); the other families have formulas of their own.
//! Results are exact as far as f64 goes. The losing option, Monte-Carlo replicas, has too
//! few degrees of freedom for scalars and costs many reference runs for each call.
//!
//! Isolated replay of a node asks the same question: [`local`] needs an operator, its input
//! tensors and a rounding model, and neither a trial nor a policy.

mod attention;
mod evaluate;
mod lanes;
mod linear;
mod loss;
mod norm;
mod pointwise;
mod softmax;
mod spread;

pub use evaluate::{Expected, Local, Rounding, local};

#[cfg(test)]
mod tests;
