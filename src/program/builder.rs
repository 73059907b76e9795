//! Building a program node by node, with module paths.

use super::graph::describe;
use super::{
    Capture, InferError, InputKind, Node, Op, Outputs, Program, ProgramError, ProgramInput, Value, ValueId,
    infer,
};
use crate::numerics::DType;

/// A program could not be built.
pub type BuildError = ProgramError;

/// Makes a [`Program`]: inputs first or in between, nodes in execution order.
///
/// Methods that add a node return its (first) result. The first error is kept and
/// returned by [`Builder::finish`]; until then the methods that follow an error do nothing
/// useful but do not panic, so that an architecture reads as straight code.
#[derive(Debug)]
pub struct Builder {
    program: Program,
    path: Vec<String>,
    error: Option<InferError>,
}

impl Builder {
    /// An empty program of architecture family `name`.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let program = Program {
            name: name.to_owned(),
            values: Vec::new(),
            inputs: Vec::new(),
            nodes: Vec::new(),
            captures: Vec::new(),
            outputs: Outputs::default(),
            unused_keys: Vec::new(),
        };
        Self { program, path: Vec::new(), error: None }
    }

    /// A trained weight under its checkpoint key, nominally `F32`.
    pub fn parameter(&mut self, key: &str, shape: &[usize]) -> ValueId {
        self.input(key, InputKind::Parameter, shape, DType::F32, |_| {})
    }

    /// A trained weight that is stored under `key` or under one of `aliases` (tied).
    pub fn tied_parameter(&mut self, key: &str, aliases: &[&str], shape: &[usize]) -> ValueId {
        self.input(key, InputKind::Parameter, shape, DType::F32, |input| {
            input.aliases = aliases.iter().map(|a| (*a).to_owned()).collect();
        })
    }

    /// State from the checkpoint that is not trained, nominally `F32`.
    pub fn buffer(&mut self, key: &str, shape: &[usize]) -> ValueId {
        self.input(key, InputKind::Buffer, shape, DType::F32, |_| {})
    }

    /// Floating-point data of the batch.
    pub fn batch_input(&mut self, name: &str, shape: &[usize]) -> ValueId {
        self.input(name, InputKind::Batch, shape, DType::F32, |_| {})
    }

    /// Integer data of the batch, each value in `0..below`.
    pub fn batch_indices(&mut self, name: &str, shape: &[usize], below: usize) -> ValueId {
        self.input(name, InputKind::Batch, shape, DType::I64, |input| input.below = Some(below))
    }

    /// Labels of the batch, each in `0..below`.
    pub fn labels(&mut self, name: &str, shape: &[usize], below: usize) -> ValueId {
        self.program.outputs.labels = Some(name.to_owned());
        self.input(name, InputKind::Label, shape, DType::I64, |input| input.below = Some(below))
    }

    /// `x` with a fraction `p` of its elements dropped by a mask that the batch provides.
    /// Without dropout (`p == 0`) this is `x` itself.
    pub fn dropout(&mut self, x: ValueId, p: f64) -> ValueId {
        if p == 0.0 {
            return x;
        }
        let drawn = self.program.inputs.iter().filter(|input| input.drop_probability.is_some()).count();
        let name = format!("dropout_mask.{drawn}");
        let shape = self.shape(x).to_vec();
        let mask =
            self.input(&name, InputKind::Mask, &shape, DType::U8, |input| input.drop_probability = Some(p));
        self.apply(Op::Dropout { p }, &[x, mask])
    }

    /// The mask `[tokens, tokens]` that is 1 where the column lies after the row; one a program.
    pub fn causal_mask(&mut self, tokens: usize) -> ValueId {
        let name = format!("causal_mask.{tokens}");
        match self.program.inputs.iter().find(|input| input.name == name) {
            Some(input) => input.value,
            None => self.input(&name, InputKind::Mask, &[tokens, tokens], DType::U8, |_| {}),
        }
    }

    /// A program input with every field under the caller's control.
    pub fn input(
        &mut self,
        name: &str,
        kind: InputKind,
        shape: &[usize],
        dtype: DType,
        adjust: impl FnOnce(&mut ProgramInput),
    ) -> ValueId {
        if is_too_large(shape) {
            self.error.get_or_insert(too_large(format!("input `{name}`"), shape));
        }
        let value = self.new_value(Value { shape: shape.to_vec(), dtype });
        let mut input = ProgramInput {
            name: name.to_owned(),
            kind,
            value,
            aliases: Vec::new(),
            below: None,
            drop_probability: None,
        };
        adjust(&mut input);
        self.program.inputs.push(input);
        value
    }

    /// Builds what `body` builds inside the module `name`; its result is captured as the
    /// module's output under the full path.
    pub fn module(&mut self, name: &str, body: impl FnOnce(&mut Self) -> ValueId) -> ValueId {
        let value = self.scope(name, body);
        self.path.push(name.to_owned());
        let name = self.path.join(".");
        self.path.pop();
        self.program.captures.push(Capture { name, value });
        value
    }

    /// Like [`Builder::module`] without capturing a result.
    pub fn scope<R>(&mut self, name: &str, body: impl FnOnce(&mut Self) -> R) -> R {
        self.path.push(name.to_owned());
        let result = body(self);
        self.path.pop();
        result
    }

    /// Adds a node with one result.
    pub fn apply(&mut self, op: Op, inputs: &[ValueId]) -> ValueId {
        self.apply_all(op, inputs)[0]
    }

    /// Adds a node; all its results.
    pub fn apply_all(&mut self, op: Op, inputs: &[ValueId]) -> Vec<ValueId> {
        let path = self.path.join(".");
        let types: Vec<&Value> = inputs.iter().map(|id| self.program.value(*id)).collect();
        // After an error shapes mean nothing, and nothing is inferred from them.
        let result = if self.error.is_none() { infer(&op, &types) } else { Ok(Vec::new()) };
        let inferred = match result {
            Ok(values) if !values.is_empty() => values,
            other => {
                if let Err(error) = other {
                    let name = describe(self.program.nodes.len(), &op, &path);
                    self.error.get_or_insert(error.at(name));
                }
                vec![Value {
                    shape: types.first().map(|v| v.shape.clone()).unwrap_or_default(),
                    dtype: DType::F32,
                }]
            }
        };
        if let Some(large) = inferred.iter().find(|value| is_too_large(&value.shape)) {
            let name = describe(self.program.nodes.len(), &op, &path);
            self.error.get_or_insert(too_large(name, &large.shape));
        }
        let outputs: Vec<ValueId> = inferred.into_iter().map(|value| self.new_value(value)).collect();
        self.program.nodes.push(Node {
            op,
            inputs: inputs.to_vec(),
            outputs: outputs.clone(),
            path,
            source: None,
        });
        outputs
    }

    /// Declares checkpoint keys that may be present without being used; `*` stands for any text.
    pub fn unused_keys(&mut self, patterns: &[&str]) {
        self.program.unused_keys.extend(patterns.iter().map(|p| (*p).to_owned()));
    }

    /// Number of nodes so far.
    #[must_use]
    pub const fn nodes(&self) -> usize {
        self.program.nodes.len()
    }

    /// Shape and dtype of a value.
    #[must_use]
    pub fn value(&self, id: ValueId) -> &Value {
        self.program.value(id)
    }

    /// Shape of a value.
    #[must_use]
    pub fn shape(&self, id: ValueId) -> &[usize] {
        &self.program.value(id).shape
    }

    /// Declares the scalar that is differentiated.
    pub const fn set_loss(&mut self, value: ValueId) {
        self.program.outputs.loss = Some(value);
    }

    /// Declares the class scores.
    pub const fn set_logits(&mut self, value: ValueId) {
        self.program.outputs.logits = Some(value);
    }

    /// Declares `value` as the updated state of buffer `key`.
    pub fn update_buffer(&mut self, key: &str, value: ValueId) {
        self.program.outputs.buffers.push(Capture { name: key.to_owned(), value });
    }

    /// The finished, validated program.
    ///
    /// # Errors
    /// The first node that does not type-check, or another violation of
    /// [`Program::validate`].
    pub fn finish(self) -> Result<Program, BuildError> {
        if let Some(error) = self.error {
            return Err(error.into());
        }
        self.program.validate()?;
        Ok(self.program)
    }

    fn new_value(&mut self, value: Value) -> ValueId {
        let id = ValueId(u32::try_from(self.program.values.len()).unwrap_or(u32::MAX));
        self.program.values.push(value);
        id
    }
}

/// Elements of the largest value that a program may have: beyond every memory, and far from
/// overflowing where sizes are multiplied.
const MAX_ELEMENTS: usize = 1 << 40;

fn is_too_large(shape: &[usize]) -> bool {
    let elements = shape.iter().try_fold(1usize, |product, dim| product.checked_mul(*dim));
    elements.is_none_or(|elements| elements > MAX_ELEMENTS)
}

fn too_large(node: String, shape: &[usize]) -> InferError {
    InferError { node, reason: format!("a value of shape {shape:?} is too large for any machine") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_node_and_its_module() {
        let mut b = Builder::new("test");
        let x = b.batch_input("x", &[2, 3]);
        let w = b.parameter("w", &[4, 5]);
        b.module("head", |b| b.apply(Op::Linear {}, &[x, w]));
        let message = b.finish().unwrap_err().to_string();
        assert_eq!(message, "node #0 linear (head): input [2, 3] does not fit weight [4, 5] ([out, in])");
    }

    #[test]
    fn sizes_that_overflow_are_an_error_and_no_panic() {
        let mut b = Builder::new("test");
        let x = b.batch_input("x", &[1 << 30, 1 << 30, 1 << 30]);
        let y = b.apply(Op::Reshape { shape: vec![-1] }, &[x]);
        b.apply(Op::Sum { dims: vec![], keepdim: false }, &[y]);
        let message = b.finish().unwrap_err().to_string();
        assert!(message.contains("input `x`") && message.contains("too large"), "{message}");
    }

    #[test]
    fn module_paths_nest() {
        let mut b = Builder::new("test");
        let x = b.batch_input("x", &[2, 3]);
        b.module("a", |b| b.module("b", |b| b.apply(Op::Relu {}, &[x])));
        let program = b.finish().unwrap();
        assert_eq!(program.nodes[0].path, "a.b");
        let names: Vec<_> = program.captures.iter().map(|c| c.name.as_str()).collect();
        assert_eq!(names, ["a.b", "a"]);
    }
}
