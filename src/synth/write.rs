//! [`synth`]: the directory, written aside and renamed when it is whole.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::sizes::{config, sizes};
use super::weights::Spread;
use crate::architecture::{BuildOptions, CONFIG_FILE, Config, ConfigFault, build};
use crate::batch::{Batch, BatchError, DATA_FILE, Stream};
use crate::checkpoint::{INDEX_FILE, MODEL_FILE};
use crate::numerics::DType;
use crate::program::{InputKind, Program, ProgramInput};
use crate::tensor::safetensors::{self, TensorSpec, WriteError, Writer};

/// Elements that are drawn before they are written: 4 MiB.
const PIECE: usize = 1 << 20;
/// Samples of the data file.
const SAMPLES: usize = 16;
/// Most files that the weights are split into.
const MAX_SHARDS: usize = 1000;

/// Which model to make.
#[derive(Clone, Debug)]
pub struct SynthOptions {
    /// Family: a `model_type`.
    pub family: String,
    /// One of the sizes of that family, see [`sizes`].
    pub size: String,
    /// Seed of weights and data.
    pub seed: u64,
    /// Files that the weights are split into; 1: `model.safetensors` alone.
    pub shards: usize,
}

/// What was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Synthesised {
    /// Elements of all weights and buffers.
    pub elements: usize,
    /// Files with weights.
    pub shards: usize,
    /// Samples of the data file.
    pub samples: usize,
}

/// No model was made, and nothing is left of it.
#[derive(Debug, thiserror::Error)]
pub enum SynthError {
    /// No such family and size.
    #[error("there is no `{family}` of size `{size}`; choose one of {known}")]
    Unknown {
        /// As asked for.
        family: String,
        /// As asked for.
        size: String,
        /// All that there are.
        known: String,
    },
    /// The number of files is out of range.
    #[error("the weights cannot be split into {0} files; ask for 1 to {most}", most = .1)]
    Shards(usize, usize),
    /// Something is there already.
    #[error("`{0}` exists and is not an empty folder; choose another output or remove it")]
    Occupied(PathBuf),
    /// The system refused.
    #[error("cannot write `{path}`: {source}; check that the folder above it exists and is writable")]
    Io {
        /// Where.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A tensor file could not be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The built-in config does not make a program.
    #[error("the built-in config is wrong: {0}; please report this")]
    Config(#[from] ConfigFault),
    /// The data could not be drawn.
    #[error(transparent)]
    Batch(#[from] BatchError),
}

/// Makes a model directory at `out`, which must not exist or be an empty folder.
///
/// Everything is written to a folder beside `out` that takes its name when it is whole.
///
/// # Errors
/// If there is no such model, `out` is occupied, or the system refuses; then `out` is as before.
pub fn synth(options: &SynthOptions, out: &Path) -> Result<Synthesised, SynthError> {
    let (family, size) = (&options.family, &options.size);
    let json = config(family, size).ok_or_else(|| SynthError::Unknown {
        family: family.clone(),
        size: size.clone(),
        known: sizes().map(|(family, size)| format!("{family} {size}")).collect::<Vec<_>>().join(", "),
    })?;
    let text = serde_json::to_string_pretty(&json).map_err(ConfigFault::Json)? + "\n";
    let program =
        build(&Config::parse(text.as_bytes())?, &BuildOptions { batch: SAMPLES, ..BuildOptions::default() })?;
    let stored: Vec<&ProgramInput> = program
        .inputs
        .iter()
        .filter(|input| matches!(input.kind, InputKind::Parameter | InputKind::Buffer))
        .collect();
    let most = stored.len().min(MAX_SHARDS);
    if !(1..=most).contains(&options.shards) {
        return Err(SynthError::Shards(options.shards, most));
    }
    if !is_free(out) {
        return Err(SynthError::Occupied(out.to_path_buf()));
    }
    let io = |path: &Path| {
        let path = path.to_path_buf();
        move |source| SynthError::Io { path, source }
    };
    let parent = out.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut builder = tempfile::Builder::new();
    builder.prefix(".parity-").suffix(".tmp");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        // As any new folder: open to others unless the umask says no.
        builder.permissions(fs::Permissions::from_mode(0o777));
    }
    let aside = builder.tempdir_in(parent).map_err(io(out))?;
    let dir = aside.path();
    fs::write(dir.join(CONFIG_FILE), text).map_err(io(out))?;
    write_weights(dir, &program, &stored, options)?;
    write_data(dir, &program, options.seed)?;
    // An empty folder at `out` gives way; a folder that has filled up meanwhile does not.
    if out.exists() {
        fs::remove_dir(out).map_err(io(out))?;
    }
    fs::rename(dir, out).map_err(io(out))?;
    let _ = aside.keep(); // nothing lies there any more
    let elements = stored.iter().map(|input| elements(&program, input)).sum();
    Ok(Synthesised { elements, shards: options.shards, samples: SAMPLES })
}

/// Whether nothing, or an empty folder, lies at `path`.
fn is_free(path: &Path) -> bool {
    if path.symlink_metadata().is_err() {
        return true;
    }
    fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none())
}

fn elements(program: &Program, input: &ProgramInput) -> usize {
    program.value(input.value).shape.iter().product()
}

/// The weights in files of about equal size, each key in the file where its first byte falls.
fn write_weights(
    dir: &Path,
    program: &Program,
    stored: &[&ProgramInput],
    options: &SynthOptions,
) -> Result<(), SynthError> {
    let shards = options.shards;
    let total: usize = stored.iter().map(|input| elements(program, input)).sum();
    let mut parts: Vec<Vec<&ProgramInput>> = vec![Vec::new(); shards];
    let mut before = 0;
    for (i, input) in stored.iter().enumerate() {
        // Never so late that a following file would stay empty, never so early either.
        let latest = i;
        let earliest = (shards + i).saturating_sub(stored.len());
        let number = (before * shards / total.max(1)).clamp(earliest, latest).min(shards - 1);
        before += elements(program, input);
        if let Some(part) = parts.get_mut(number) {
            part.push(input);
        }
    }
    let metadata = BTreeMap::from([("format".to_owned(), "pt".to_owned())]);
    let mut map = BTreeMap::new();
    for (number, part) in parts.iter().enumerate() {
        let name = if shards == 1 {
            MODEL_FILE.to_owned()
        } else {
            format!("model-{:05}-of-{shards:05}.safetensors", number + 1)
        };
        let specs = part.iter().map(|input| TensorSpec {
            name: input.name.clone(),
            dtype: DType::F32,
            shape: program.value(input.value).shape.clone(),
        });
        let mut writer = Writer::create(&dir.join(&name), specs.collect(), &metadata)?;
        for input in part {
            let (stream, spread) =
                (Stream::new(options.seed, &format!("weight/{}", input.name)), Spread::of(program, input));
            let count = elements(program, input);
            for first in (0..count).step_by(PIECE) {
                writer.append(&input.name, &spread.draw(&stream, first, PIECE.min(count - first)))?;
            }
            map.insert(input.name.clone(), name.clone());
        }
        writer.finish()?;
    }
    if shards > 1 {
        let path = dir.join(INDEX_FILE);
        let index = serde_json::json!({"metadata": {"total_size": total * 4}, "weight_map": map});
        let text = format!("{index:#}\n");
        fs::write(&path, text).map_err(|source| SynthError::Io { path, source })?;
    }
    Ok(())
}

/// A few samples with labels, drawn as a batch of the program.
fn write_data(dir: &Path, program: &Program, seed: u64) -> Result<(), SynthError> {
    let batch = Batch::from_seed(program, seed)?;
    let tensors: Vec<_> = batch.tensors.iter().collect();
    Ok(safetensors::write(&dir.join(DATA_FILE), &tensors, &BTreeMap::new())?)
}
