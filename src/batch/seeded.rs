//! [`Batch`], and drawing it from a seed.

use std::collections::BTreeMap;

use blake3::Hash;
use rayon::prelude::*;

use super::{BatchError, Stream};
use crate::numerics::DType;
use crate::program::{InputKind, Program, ProgramInput};
use crate::tensor::{self, Bytes, HostTensor};

/// Elements that one task draws.
const BLOCK: usize = 1 << 12;

/// Everything that a program takes besides its checkpoint, by input name.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// Inputs, labels and masks. Floating-point tensors of a data file keep the file's dtype;
    /// drawn ones have the program's (and are exact in every other).
    pub tensors: BTreeMap<String, HostTensor>,
}

impl Batch {
    /// Draws every input, label and mask of `program` from `seed`: normal values for
    /// floating-point inputs, uniform integers below the bound of an integer input,
    /// masks by their drop probability; causal masks are what they are.
    ///
    /// # Errors
    /// If an integer input has no bound, or a tensor is too large.
    pub fn from_seed(program: &Program, seed: u64) -> Result<Self, BatchError> {
        let kinds = [InputKind::Batch, InputKind::Label, InputKind::Mask];
        Self::drawn(program, seed, &kinds)
    }

    /// Draws the inputs of these kinds.
    pub(super) fn drawn(program: &Program, seed: u64, kinds: &[InputKind]) -> Result<Self, BatchError> {
        let tensors = program
            .inputs
            .iter()
            .filter(|input| kinds.contains(&input.kind))
            .map(|input| Ok((input.name.clone(), draw(program, input, seed)?)))
            .collect::<Result<_, BatchError>>()?;
        Ok(Self { tensors })
    }

    /// The tensor of an input.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&HostTensor> {
        self.tensors.get(name)
    }

    /// Hash of names, dtypes, shapes and bytes.
    #[must_use]
    pub fn content_hash(&self) -> Hash {
        let hashes: BTreeMap<&str, Hash> =
            self.tensors.iter().map(|(name, t)| (name.as_str(), tensor::content_hash(t))).collect();
        tensor::set_hash(&hashes)
    }
}

fn draw(program: &Program, input: &ProgramInput, seed: u64) -> Result<HostTensor, BatchError> {
    let value = program.value(input.value);
    let stream = Stream::new(seed, &input.name);
    let elements = value.shape.iter().try_fold(1usize, |product, dim| product.checked_mul(*dim));
    let error = |source| BatchError::Tensor { name: input.name.clone(), source };
    let Some(n) = elements else {
        return Err(error(tensor::TensorError::TooLarge(value.shape.clone())));
    };
    let bytes = match (input.kind, value.dtype) {
        (InputKind::Mask, _) => match (input.drop_probability, value.shape.as_slice()) {
            (Some(p), _) => generate(n, |i| [u8::from(stream.keep(i, p))]),
            (None, [.., rows, columns]) => {
                let (rows, columns) = ((*rows).max(1) as u64, (*columns).max(1) as u64);
                generate(n, |i| [u8::from(i % columns > i / columns % rows)])
            }
            (None, _) => vec![0; n],
        },
        (_, DType::I64) => {
            let below = input.below.ok_or_else(|| BatchError::Unbounded(input.name.clone()))? as u64;
            generate(n, |i| stream.below(i, below).to_le_bytes())
        }
        (_, DType::U8) => {
            let below = input.below.ok_or_else(|| BatchError::Unbounded(input.name.clone()))?.min(256) as u64;
            generate(n, |i| [u8::try_from(stream.below(i, below)).unwrap_or(0)])
        }
        // Exact in every float dtype: the casts do not round.
        (_, dtype) => {
            let exact = generate(n, |i| stream.normal(i).to_le_bytes());
            let exact = HostTensor::new(DType::F64, value.shape.clone(), Bytes::Owned(exact.into()));
            return exact.map(|t| t.cast(dtype)).map_err(error);
        }
    };
    HostTensor::new(value.dtype, value.shape.clone(), Bytes::Owned(bytes.into())).map_err(error)
}

/// The bytes of `n` elements, in parallel; an element depends on its index alone.
fn generate<const N: usize>(n: usize, element: impl Fn(u64) -> [u8; N] + Sync) -> Vec<u8> {
    let mut bytes = vec![0; n * N];
    bytes.par_chunks_mut(BLOCK * N).enumerate().for_each(|(block, bytes)| {
        for (i, slot) in bytes.as_chunks_mut::<N>().0.iter_mut().enumerate() {
            *slot = element((block * BLOCK + i) as u64);
        }
    });
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::architecture::{BuildOptions, Config, Mode, build};

    fn program(text: &str, mode: Mode) -> Program {
        let options = BuildOptions { batch: 4, mode, ..BuildOptions::default() };
        build(&Config::parse(text.as_bytes()).unwrap(), &options).unwrap()
    }

    const MLP: &str = r#"{"model_type": "mlp", "layer_sizes": [12, 16, 5]}"#;
    const GPT2: &str = r#"{"model_type": "gpt2", "vocab_size": 97, "n_positions": 8, "n_embd": 16,
        "n_layer": 1, "n_head": 2}"#;

    #[test]
    fn a_seeded_batch_never_changes() {
        let batch = Batch::from_seed(&program(MLP, Mode::Eval), 1).unwrap();
        // Computed a second time by an independent program.
        let golden = "65b06e1b39eaa8f890521b1c3e260dce462b897231a27773d4ba8eadb99363f4";
        assert_eq!(batch.content_hash().to_hex().as_str(), golden);
        assert_eq!(batch.get("labels").unwrap().to_i64(), [1, 4, 1, 0]);
    }

    #[test]
    fn the_number_of_threads_does_not_matter() {
        let n = 3 * BLOCK + 5;
        let parallel = generate(n, u64::to_le_bytes);
        let serial: Vec<u8> = (0..n as u64).flat_map(u64::to_le_bytes).collect();
        assert_eq!(parallel, serial);
    }

    #[test]
    fn every_input_is_there_in_the_shape_and_range_of_the_program() {
        let p = program(GPT2, Mode::Train);
        let batch = Batch::from_seed(&p, 3).unwrap();
        for kind in [InputKind::Batch, InputKind::Label, InputKind::Mask] {
            for input in p.inputs_of(kind) {
                let (t, v) = (batch.get(&input.name).unwrap(), p.value(input.value));
                assert_eq!((t.shape(), t.dtype()), (v.shape.as_slice(), v.dtype), "{}", input.name);
                let below = i64::try_from(input.below.unwrap_or(2)).unwrap();
                assert!(t.to_i64().iter().all(|v| (0..below).contains(v)), "{}", input.name);
            }
        }
        assert_eq!(batch.tensors.len(), 2 + 1 + 4);
    }

    #[test]
    fn a_causal_mask_hides_what_comes_later() {
        let batch = Batch::from_seed(&program(GPT2, Mode::Train), 3).unwrap();
        let mask = batch.get("causal_mask.8").unwrap();
        for (i, hidden) in mask.to_i64().into_iter().enumerate() {
            assert_eq!(hidden == 1, i % 8 > i / 8, "row {} column {}", i / 8, i % 8);
        }
    }

    #[test]
    fn another_seed_gives_another_batch() {
        let p = program(MLP, Mode::Eval);
        let hash = |seed| Batch::from_seed(&p, seed).unwrap().content_hash();
        assert_eq!(hash(1), hash(1));
        assert_ne!(hash(1), hash(2));
    }
}
