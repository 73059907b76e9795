//! Dtype policies: what is held in which dtype, and the rewrite that makes a program so.
//!
//! A [`Precision`] is known by name and says for every kind of value what it is held in.
//! [`rewrite`] turns a nominally f32 program into the same program in those dtypes: inputs,
//! captures and nodes keep their names and order, and where a dtype changes between two
//! nodes a `Cast` node is inserted that every engine executes like any other operator. What
//! was cast where is thus part of the program, not a habit of an engine.
//!
//! Pure precisions hold everything in one dtype. The mixed ones follow `torch.autocast`:
//! weights stay f32 and are cast for matrix products, convolutions and attention, which run
//! in 16 bits; normalisation, softmax, sums and losses run in f32; everything else runs in
//! the widest dtype of its arguments.

mod policy;
mod rewrite;

pub use policy::{Precision, UnknownPrecision};
pub use rewrite::{PrecisionError, rewrite};
