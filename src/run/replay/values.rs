//! [`ReferenceValues`]: what the reference has at every place of a program.

use std::collections::HashMap;

use crate::engine::interpreter::{Feed, Gradient, PassError, PassOptions, run_pass};
use crate::engine::reference::ReferenceEngine;
use crate::program::{Capture, Program, ValueId};
use crate::tensor::HostTensor;

/// Every value of one pass of the reference and the gradient of the loss with respect to it,
/// in f64 (integers in their own dtype).
///
/// All of it is in memory at once: twice eight bytes for every element of every value.
#[derive(Clone, Debug, Default)]
pub struct ReferenceValues {
    values: HashMap<ValueId, HostTensor>,
    gradients: HashMap<ValueId, HostTensor>,
}

impl ReferenceValues {
    /// Runs the reference on `program` with `feed`, and keeps everything.
    ///
    /// # Errors
    /// As [`run_pass`]: an input is missing or does not fit, or an operator refuses.
    pub fn of(program: &Program, feed: &Feed<'_>) -> Result<Self, PassError> {
        // The same program with a capture for every value that an operator makes.
        let made = program.nodes.iter().flat_map(|node| &node.outputs);
        let captures = made.map(|id| Capture { name: id.index().to_string(), value: *id });
        let observed = Program { captures: captures.collect(), ..program.clone() };
        let options =
            PassOptions { capture: true, gradients: true, activation_gradients: true, trace: false };
        let out = run_pass(&ReferenceEngine::new(), &observed, feed, options)?;
        let by_name: HashMap<&str, ValueId> =
            observed.captures.iter().map(|capture| (capture.name.as_str(), capture.value)).collect();
        let of = |name: &str| by_name.get(name).copied();
        let mut found = Self::default();
        for input in &program.inputs {
            if let Some(tensor) = feed(&input.name) {
                found.values.insert(input.value, tensor);
            }
        }
        found.values.extend(out.activations.into_iter().filter_map(|(name, t)| Some((of(&name)?, t))));
        found.gradients.extend(out.activation_gradients.into_iter().filter_map(|(name, gradient)| {
            match gradient {
                Gradient::Value(tensor) => Some((of(&name)?, tensor)),
                Gradient::None => None,
            }
        }));
        Ok(found)
    }

    /// A value as the program's dtype holds it.
    #[must_use]
    pub fn rounded(&self, program: &Program, id: ValueId) -> Option<HostTensor> {
        self.values.get(&id).map(|tensor| tensor.cast(program.value(id).dtype))
    }

    /// The gradient that arrives at a value, as the program's dtype holds it; `None` if the
    /// loss does not depend on it.
    #[must_use]
    pub fn incoming(&self, program: &Program, id: ValueId) -> Option<HostTensor> {
        let dtype = program.value(id).dtype;
        self.gradients.get(&id).filter(|_| dtype.is_float()).map(|tensor| tensor.cast(dtype))
    }
}
