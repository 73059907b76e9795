//! [`Prepared`]: everything about a subject that is the same for all targets.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

use super::{Data, RunError, SubjectSpec};
use crate::architecture;
use crate::architecture::{BuildOptions, Mode};
use crate::batch::{Batch, DATA_FILE, Evaluation};
use crate::checkpoint::{Checkpoint, Warning};
use crate::program::{InputKind, Program};
use crate::recording::Subject;
use crate::tensor::safetensors::SafetensorsFile;
use crate::tensor::{HostTensor, content_hash, set_hash};

/// Checkpoint, program and batch, read and checked.
#[derive(Debug)]
pub struct Prepared {
    /// As asked for.
    pub spec: SubjectSpec,
    /// The weights.
    pub checkpoint: Checkpoint,
    /// The base program, nominally f32.
    pub program: Program,
    /// Inputs, labels and masks of one pass.
    pub batch: Batch,
    /// All labelled samples.
    pub samples: Option<Samples>,
    /// What was computed: what must agree before anything is compared.
    pub subject: Subject,
    /// What is odd about the files but not wrong.
    pub warnings: Vec<Warning>,
}

/// The data file as a whole, for metrics.
#[derive(Debug)]
pub struct Samples {
    /// The file.
    pub path: PathBuf,
    /// Samples in it.
    pub count: usize,
    /// The program in evaluation mode at the size of the batch, and at the size of the
    /// remainder where the samples do not divide evenly. The remainder has a program of its
    /// own because a padded batch would change the loss, which is a mean over its rows.
    pub programs: Vec<Program>,
    /// Name of the labels.
    pub labels: String,
    batch: usize,
}

impl Prepared {
    /// Reads and checks what `spec` names.
    ///
    /// # Errors
    /// If the config, the weights or the data are not there, not sound, or do not fit each
    /// other.
    pub fn load(spec: &SubjectSpec) -> Result<Self, RunError> {
        let options = spec.build_options();
        let program = architecture::load(&spec.model, &options)?;
        let checkpoint = Checkpoint::open(&spec.model)?;
        let mut warnings = checkpoint.check(&program)?;
        warnings.extend(checkpoint.non_finite());
        let data = match &spec.data {
            Data::File(path) => Some(path.clone()),
            Data::Seed => None,
            Data::Auto => Some(spec.model.join(DATA_FILE)).filter(|path| path.exists()),
        };
        let batch = match &data {
            Some(path) => Batch::from_file(&program, path, spec.seed, spec.first_sample)?,
            None => Batch::from_seed(&program, spec.seed)?,
        };
        let samples = match data {
            Some(path) => Samples::open(spec, &program, path)?,
            None => None,
        };
        let subject = Subject {
            checkpoint: checkpoint.content_hash().to_hex().to_string(),
            program: program_hash(&program),
            batch: batch.content_hash().to_hex().to_string(),
            evaluation: match &samples {
                Some(samples) => samples.hash(&program)?,
                None => String::new(),
            },
            seed: spec.seed,
            mode: if spec.train { "train" } else { "eval" }.to_owned(),
        };
        Ok(Self { spec: spec.clone(), checkpoint, program, batch, samples, subject, warnings })
    }

    /// The tensors of a pass of `program` (this program or one in other dtypes) on `batch`,
    /// each as the program holds it.
    pub fn feed<'a>(
        &'a self,
        program: &'a Program,
        batch: &'a Batch,
    ) -> impl Fn(&str) -> Option<HostTensor> + Sync + 'a {
        let inputs: HashMap<&str, _> =
            program.inputs.iter().map(|input| (input.name.as_str(), input)).collect();
        move |name| {
            let input = *inputs.get(name)?;
            let stored = match input.kind {
                InputKind::Parameter | InputKind::Buffer => self.checkpoint.tensor(input)?,
                InputKind::Batch | InputKind::Label | InputKind::Mask => batch.get(name)?.clone(),
            };
            Some(stored.cast(program.value(input.value).dtype))
        }
    }
}

impl Samples {
    /// The evaluation set, if the program says how its logits are labelled.
    fn open(spec: &SubjectSpec, program: &Program, path: PathBuf) -> Result<Option<Self>, RunError> {
        let outputs = &program.outputs;
        let (Some(labels), Some(_), Some(_)) = (&outputs.labels, outputs.logits, outputs.loss) else {
            return Ok(None);
        };
        let labels = labels.clone();
        let count = Evaluation::open(program, &path)?.samples();
        let build = |batch| {
            let options = BuildOptions { batch, mode: Mode::Eval, ..spec.build_options() };
            architecture::load(&spec.model, &options)
        };
        // A data file with fewer samples than a batch was refused before.
        let batch = spec.batch;
        let mut programs = vec![build(batch)?];
        if !count.is_multiple_of(batch) {
            programs.push(build(count % batch)?);
        }
        Ok(Some(Self { path, count, programs, labels, batch }))
    }

    /// Samples in a full piece.
    pub(super) const fn size(&self) -> usize {
        self.batch
    }

    /// Hash of all rows of the program's inputs and labels.
    fn hash(&self, program: &Program) -> Result<String, RunError> {
        let file = SafetensorsFile::open(&self.path).map_err(crate::batch::BatchError::from)?;
        let hashes: BTreeMap<&str, blake3::Hash> = program
            .inputs
            .iter()
            .filter(|input| matches!(input.kind, InputKind::Batch | InputKind::Label))
            .filter_map(|input| Some((input.name.as_str(), content_hash(&file.tensor(&input.name)?))))
            .collect();
        Ok(set_hash(&hashes).to_hex().to_string())
    }
}

/// blake3 over the program's JSON, whose field order is fixed by its types.
fn program_hash(program: &Program) -> String {
    let json = serde_json::to_vec(program).unwrap_or_default();
    blake3::hash(&json).to_hex().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn spec(fixture: &str) -> SubjectSpec {
        SubjectSpec::new(&Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(fixture))
    }

    #[test]
    fn a_model_directory_becomes_a_subject() {
        let prepared = Prepared::load(&spec("mlp-tiny")).unwrap();
        let samples = prepared.samples.as_ref().unwrap();
        assert_eq!((samples.count, samples.programs.len()), (40, 1));
        assert!(prepared.warnings.is_empty());
        let again = Prepared::load(&spec("mlp-tiny")).unwrap();
        assert_eq!(prepared.subject, again.subject);
        let feed = prepared.feed(&prepared.program, &prepared.batch);
        for input in &prepared.program.inputs {
            assert_eq!(feed(&input.name).unwrap().shape(), prepared.program.value(input.value).shape);
        }
        assert!(feed("nobody").is_none());
    }

    #[test]
    fn what_the_user_changes_changes_its_part_of_the_subject() {
        let base = Prepared::load(&spec("mlp-tiny")).unwrap().subject;
        let parts = |spec: SubjectSpec| -> Vec<&'static str> {
            let other = Prepared::load(&spec).unwrap().subject;
            base.differences(&other).into_iter().map(|(name, _, _)| name).collect()
        };
        assert_eq!(parts(SubjectSpec { first_sample: 1, ..spec("mlp-tiny") }), ["batch"]);
        assert_eq!(parts(SubjectSpec { seed: 1, ..spec("mlp-tiny") }), ["seed"]);
        assert_eq!(parts(SubjectSpec { train: true, ..spec("mlp-tiny") }), ["mode"]);
        assert_eq!(parts(SubjectSpec { batch: 4, ..spec("mlp-tiny") }), ["program", "batch"]);
        assert_eq!(parts(SubjectSpec { data: Data::Seed, ..spec("mlp-tiny") }), ["batch", "evaluation"]);
    }

    #[test]
    fn a_remainder_gets_a_program_of_its_own() {
        let prepared = Prepared::load(&SubjectSpec { batch: 16, ..spec("mlp-tiny") }).unwrap();
        let batches: Vec<usize> = prepared
            .samples
            .unwrap()
            .programs
            .iter()
            .map(|p| p.value(p.inputs_of(InputKind::Label).next().unwrap().value).shape[0])
            .collect();
        assert_eq!(batches, [16, 8]);
    }

    #[test]
    fn files_that_are_not_there_are_named() {
        let error = Prepared::load(&spec("no-such-model")).unwrap_err();
        assert!(error.is_request() && error.to_string().contains("no-such-model"), "{error}");
        let data = Data::File("/nowhere/x.safetensors".into());
        let error = Prepared::load(&SubjectSpec { data, ..spec("mlp-tiny") }).unwrap_err();
        assert!(error.to_string().contains("/nowhere/x.safetensors"), "{error}");
    }
}
