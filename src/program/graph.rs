//! [`Program`]: inputs, nodes, outputs.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{InferError, Op, infer};
use crate::numerics::DType;

/// Index of a value in [`Program::values`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ValueId(pub u32);

impl ValueId {
    /// Position in [`Program::values`].
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Shape and dtype of a value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Value {
    /// Dimensions, outermost first.
    pub shape: Vec<usize>,
    /// Element type.
    pub dtype: DType,
}

/// Where a program input comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum InputKind {
    /// Trained weight, read from the checkpoint; has a gradient.
    Parameter,
    /// State that is not trained (running statistics), read from the checkpoint.
    Buffer,
    /// Data of the batch; float inputs have a gradient.
    Batch,
    /// Labels of the batch.
    Label,
    /// Mask made on the host: of dropout (drawn), or causal (without a drop probability).
    Mask,
}

/// One program input.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProgramInput {
    /// Checkpoint key, or name in the batch.
    pub name: String,
    /// Where it comes from.
    pub kind: InputKind,
    /// The value that it becomes.
    pub value: ValueId,
    /// Other checkpoint keys under which the same (tied) tensor may also be stored.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aliases: Vec<String>,
    /// For integer inputs: exclusive upper bound of legal values (vocabulary, classes).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub below: Option<usize>,
    /// For masks of dropout: probability that an element is dropped (0). A mask without it is
    /// causal: 1 where the last index is greater than the one before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drop_probability: Option<f64>,
}

/// One operator application.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// Operator and attributes.
    #[serde(flatten)]
    pub op: Op,
    /// Tensor arguments.
    pub inputs: Vec<ValueId>,
    /// Results; most operators have one.
    pub outputs: Vec<ValueId>,
    /// Module path, such as `encoder.layer.3.attention`; may be empty.
    pub path: String,
    /// `file:line` of the user's code, where the source of the program has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
}

/// A value to be recorded under a name: the output of a module.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capture {
    /// Module path.
    pub name: String,
    /// Its output.
    pub value: ValueId,
}

/// What a program computes for its caller.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outputs {
    /// Scalar that is differentiated.
    pub loss: Option<ValueId>,
    /// Class scores `[.., classes]`, for metrics.
    pub logits: Option<ValueId>,
    /// Name of the label input that metrics compare `logits` with.
    pub labels: Option<String>,
    /// Updated buffers: name of the buffer and its new value.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub buffers: Vec<Capture>,
}

/// A backend-neutral graph of tensor operators in single-assignment form.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Program {
    /// Architecture family, such as `vit`.
    pub name: String,
    /// Shape and dtype of every value.
    pub values: Vec<Value>,
    /// Parameters, buffers, batch inputs, labels and masks.
    pub inputs: Vec<ProgramInput>,
    /// Operators in execution order.
    pub nodes: Vec<Node>,
    /// Module outputs in execution order.
    pub captures: Vec<Capture>,
    /// Loss, logits, updated buffers.
    pub outputs: Outputs,
    /// Checkpoint keys that this family's files may hold without being used, such as mask
    /// buffers; `*` stands for any text. What matches is noted, not refused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unused_keys: Vec<String>,
}

/// A program is not well formed.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// A node, capture or output uses a value that is not defined before it.
    #[error("{user} uses value %{value}, which nothing before it defines")]
    Undefined {
        /// Who uses it.
        user: String,
        /// The undefined value.
        value: u32,
    },
    /// A value is defined twice.
    #[error("value %{value} is defined a second time by {user}")]
    Redefined {
        /// Who defines it again.
        user: String,
        /// The value.
        value: u32,
    },
    /// Two inputs or two captures share a name.
    #[error("the name `{0}` is used twice")]
    DuplicateName(String),
    /// A node does not type-check.
    #[error(transparent)]
    Infer(#[from] InferError),
    /// A node's recorded result differs from what its operator gives.
    #[error("node {node}: recorded as {recorded:?}, but its operator gives {inferred:?}")]
    Mistyped {
        /// The node.
        node: String,
        /// What the program says.
        recorded: Vec<Value>,
        /// What inference says.
        inferred: Vec<Value>,
    },
    /// The loss is not a float scalar.
    #[error("the loss must be a floating-point scalar, it is {0:?}")]
    Loss(Value),
}

impl Program {
    /// Shape and dtype of a value.
    #[must_use]
    pub fn value(&self, id: ValueId) -> &Value {
        &self.values[id.index()]
    }

    /// Inputs of one kind, in order.
    pub fn inputs_of(&self, kind: InputKind) -> impl Iterator<Item = &ProgramInput> {
        self.inputs.iter().filter(move |input| input.kind == kind)
    }

    /// How a node is called in messages: `%7 layer_norm (encoder.layer.0)`.
    #[must_use]
    pub fn describe_node(&self, index: usize) -> String {
        let node = &self.nodes[index];
        describe(index, &node.op, &node.path)
    }

    /// For every value the index of the last node that reads it; `None` if none does.
    #[must_use]
    pub fn last_uses(&self) -> Vec<Option<usize>> {
        let mut last = vec![None; self.values.len()];
        for (index, node) in self.nodes.iter().enumerate() {
            for input in &node.inputs {
                last[input.index()] = Some(index);
            }
        }
        last
    }

    /// Checks definition before use, unique names, and shapes and dtypes of every node.
    ///
    /// # Errors
    /// The first violation, naming the node.
    pub fn validate(&self) -> Result<(), ProgramError> {
        let mut defined = vec![false; self.values.len()];
        let mut define = |id: ValueId, user: &dyn Fn() -> String| match defined.get_mut(id.index()) {
            None => Err(ProgramError::Undefined { user: user(), value: id.0 }),
            Some(true) => Err(ProgramError::Redefined { user: user(), value: id.0 }),
            Some(slot) => {
                *slot = true;
                Ok(())
            }
        };
        let mut names = BTreeSet::new();
        for input in &self.inputs {
            define(input.value, &|| format!("input `{}`", input.name))?;
            for name in std::iter::once(&input.name).chain(&input.aliases) {
                if !names.insert(name.as_str()) {
                    return Err(ProgramError::DuplicateName(name.clone()));
                }
            }
        }
        let mut known: Vec<bool> = vec![false; self.values.len()];
        for input in &self.inputs {
            known[input.value.index()] = true;
        }
        for (index, node) in self.nodes.iter().enumerate() {
            let name = || describe(index, &node.op, &node.path);
            for input in &node.inputs {
                if !known.get(input.index()).copied().unwrap_or(false) {
                    return Err(ProgramError::Undefined { user: name(), value: input.0 });
                }
            }
            for output in &node.outputs {
                define(*output, &name)?;
                known[output.index()] = true;
            }
            let inputs: Vec<&Value> = node.inputs.iter().map(|id| self.value(*id)).collect();
            let inferred = infer(&node.op, &inputs).map_err(|e| e.at(name()))?;
            let recorded: Vec<Value> = node.outputs.iter().map(|id| self.value(*id).clone()).collect();
            if inferred != recorded {
                return Err(ProgramError::Mistyped { node: name(), recorded, inferred });
            }
        }
        let mut captured = BTreeSet::new();
        for capture in self.captures.iter().chain(&self.outputs.buffers) {
            if !known.get(capture.value.index()).copied().unwrap_or(false) {
                let user = format!("capture `{}`", capture.name);
                return Err(ProgramError::Undefined { user, value: capture.value.0 });
            }
        }
        for capture in &self.captures {
            if !captured.insert(capture.name.as_str()) {
                return Err(ProgramError::DuplicateName(capture.name.clone()));
            }
        }
        for (what, id) in [("the loss", self.outputs.loss), ("the logits", self.outputs.logits)] {
            let Some(id) = id else { continue };
            if !known.get(id.index()).copied().unwrap_or(false) {
                return Err(ProgramError::Undefined { user: what.to_owned(), value: id.0 });
            }
        }
        if let Some(loss) = self.outputs.loss.map(|id| self.value(id))
            && !(loss.shape.is_empty() && loss.dtype.is_float())
        {
            return Err(ProgramError::Loss(loss.clone()));
        }
        Ok(())
    }
}

pub(super) fn describe(index: usize, op: &Op, path: &str) -> String {
    if path.is_empty() {
        format!("#{index} {}", op.name())
    } else {
        format!("#{index} {} ({path})", op.name())
    }
}
