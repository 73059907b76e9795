//! Gradients from libtorch's autograd.
#![expect(unsafe_code, reason = "passes tensors to C++ and takes new ones over")]

use std::ffi::c_void;
use std::ptr::{null, null_mut};

use tch::Tensor;

use super::error::{NativeError, check};
use super::ffi;

#[derive(Debug, Clone, Copy, Default)]
pub struct GradientOptions {
    /// Keep the graph for another backward through it.
    pub retain_graph: bool,
    /// Build a graph of the gradients themselves.
    pub create_graph: bool,
}

fn pointer(tensor: &Tensor) -> *mut c_void {
    tensor.as_ptr().cast_mut().cast()
}

/// Gradients of `outputs` with respect to `inputs`, weighted by `seeds`.
///
/// `None` in the answer: that input is not connected to any output. A connected
/// input whose gradient is zero gets a tensor of zeros. `seeds` is empty, for
/// scalar outputs, or holds one entry an output, `None` being the implicit one
/// of a scalar.
///
/// # Errors
///
/// What autograd refused, such as an output that is not a scalar and has no seed.
pub fn gradients(
    outputs: &[&Tensor],
    inputs: &[&Tensor],
    seeds: &[Option<&Tensor>],
    options: GradientOptions,
) -> Result<Vec<Option<Tensor>>, NativeError> {
    const DOING: &str = "compute gradients";
    if !seeds.is_empty() && seeds.len() != outputs.len() {
        let message = format!("{} seeds for {} outputs", seeds.len(), outputs.len());
        return Err(NativeError::Torch { doing: DOING, message });
    }
    let output_pointers: Vec<_> = outputs.iter().copied().map(pointer).collect();
    let input_pointers: Vec<_> = inputs.iter().copied().map(pointer).collect();
    let seed_pointers: Vec<_> = seeds.iter().map(|seed| seed.map_or(null_mut(), pointer)).collect();
    let mut found = vec![null_mut::<c_void>(); inputs.len()];
    // SAFETY: all pointers are to live tensors for the whole call; the tensors
    // are only read through them. `found` has room for one pointer an input.
    check(DOING, unsafe {
        ffi::parity_gradients(
            output_pointers.as_ptr(),
            if seeds.is_empty() { null() } else { seed_pointers.as_ptr() },
            output_pointers.len(),
            input_pointers.as_ptr(),
            input_pointers.len(),
            options.retain_graph.into(),
            options.create_graph.into(),
            found.as_mut_ptr(),
        )
    })?;
    Ok(found
        .into_iter()
        // SAFETY: each is a tensor made for us, or null.
        .map(|found| (!found.is_null()).then(|| unsafe { Tensor::from_ptr(found.cast()) }))
        .collect())
}
