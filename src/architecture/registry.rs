//! The families, and building a program of one.

use std::path::Path;

use super::config::{ArchitectureError, CONFIG_FILE, Config, ConfigFault};
use super::{gpt2, mlp, resnet, vit};
use crate::program::Program;

/// What the program is used for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Dropout is the identity, batch norm uses its running statistics.
    #[default]
    Eval,
    /// Dropout by masks of the batch, batch norm by the statistics of the batch.
    Train,
}

/// What a config does not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BuildOptions {
    /// Samples in a batch.
    pub batch: usize,
    /// Tokens in a sample, for families that have sequences; `None`: the family's choice
    /// (64, or what the model allows if that is less).
    pub sequence: Option<usize>,
    /// Height and width of images, for families whose config does not fix them; `None`: 224.
    pub image: Option<[usize; 2]>,
    /// Training or evaluation.
    pub mode: Mode,
}

impl Default for BuildOptions {
    fn default() -> Self {
        Self { batch: 8, sequence: None, image: None, mode: Mode::Eval }
    }
}

/// Largest batch.
const MAX_BATCH: usize = 1 << 16;

type Build = fn(&Config, &BuildOptions) -> Result<Program, ConfigFault>;

/// `model_type` and what builds it.
const FAMILIES: [(&str, Build); 4] =
    [("gpt2", gpt2::build), ("mlp", mlp::build), ("resnet", resnet::build), ("vit", vit::build)];

/// Every `model_type` that is known, in alphabetical order.
pub fn families() -> impl Iterator<Item = &'static str> {
    FAMILIES.iter().map(|(name, _)| *name)
}

/// The program of a model directory.
///
/// # Errors
/// If its `config.json` is absent or unsound, names an unknown family, or does not make a
/// consistent program.
pub fn load(model_dir: &Path, options: &BuildOptions) -> Result<Program, ArchitectureError> {
    let config = Config::read(model_dir)?;
    build(&config, options).map_err(|fault| ArchitectureError { path: model_dir.join(CONFIG_FILE), fault })
}

/// The program of a config.
///
/// # Errors
/// As [`load`], without the file.
pub fn build(config: &Config, options: &BuildOptions) -> Result<Program, ConfigFault> {
    if !(1..=MAX_BATCH).contains(&options.batch) {
        return Err(ConfigFault::Options(format!(
            "a batch of {} samples cannot be built; ask for 1 to {MAX_BATCH}",
            options.batch
        )));
    }
    let found = match config.get("model_type") {
        None => return Err(ConfigFault::MissingField("model_type")),
        Some(_) => config.text_or("model_type", "")?,
    };
    match FAMILIES.iter().find(|(name, _)| *name == found) {
        Some((_, build)) => build(config, options),
        None => Err(ConfigFault::UnknownModelType {
            found: found.to_owned(),
            known: families().collect::<Vec<_>>().join(", "),
            hint: suggestion(found),
        }),
    }
}

/// The most similar family, as a question, if one is near.
fn suggestion(found: &str) -> String {
    families()
        .map(|name| (strsim::damerau_levenshtein(&found.to_lowercase(), name), name))
        .min()
        .filter(|(distance, name)| *distance <= 2 && *distance < name.len())
        .map(|(_, name)| format!(" (did you mean `{name}`?)"))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fails(text: &str, options: BuildOptions) -> String {
        build(&Config::parse(text.as_bytes()).unwrap(), &options).unwrap_err().to_string()
    }

    #[test]
    fn an_unknown_family_lists_the_known_ones() {
        let options = BuildOptions::default();
        let message = fails(r#"{"model_type": "bert"}"#, options);
        assert_eq!(message, "unknown model_type `bert`; known are gpt2, mlp, resnet, vit");
        let message = fails(r#"{"model_type": "VIT"}"#, options);
        assert!(message.contains("did you mean `vit`?"), "{message}");
        assert_eq!(fails("{}", options), "the field `model_type` is missing; add it");
        assert!(fails(r#"{"model_type": 3}"#, options).contains("must be a text"));
    }

    #[test]
    fn a_batch_out_of_range_is_refused() {
        for batch in [0, MAX_BATCH + 1, usize::MAX] {
            let message =
                fails(r#"{"model_type": "vit"}"#, BuildOptions { batch, ..BuildOptions::default() });
            assert!(message.contains("ask for 1 to 65536"), "{message}");
        }
    }

    #[test]
    fn a_missing_config_and_one_that_is_not_json_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let options = BuildOptions::default();
        let message = load(dir.path(), &options).unwrap_err().to_string();
        assert!(
            message.ends_with("config.json`: no such file; put the model's config.json beside its weights")
        );
        for (text, words) in [("{\"model_type\"", "is not JSON"), ("[1]", "is not a JSON object")] {
            std::fs::write(dir.path().join(CONFIG_FILE), text).unwrap();
            let message = load(dir.path(), &options).unwrap_err().to_string();
            assert!(message.contains("config.json`: ") && message.contains(words), "{message}");
        }
    }
}
