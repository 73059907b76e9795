//! [`Environment`]: gathered once a process, stored in every recording.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Redaction, system};

/// Environment variables that change numbers, threads, memory or placement of some engine.
/// A name that ends in `*` stands for every variable that begins so.
pub const RELEVANT_VARIABLES: &[&str] = &[
    "ACCELERATE_*",
    "CANDLE_*",
    "CUBLAS_*",
    "CUDA_*",
    "CUDNN_*",
    "DYLD_LIBRARY_PATH",
    "GOTO_NUM_THREADS",
    "KMP_*",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "LIBTORCH*",
    "MALLOC_*",
    "METAL_*",
    "MKL_*",
    "MTL_*",
    "NCCL_*",
    "NVIDIA_TF32_OVERRIDE",
    "OMP_*",
    "OPENBLAS_*",
    "PARITY_*",
    "PYTORCH_*",
    "RAYON_NUM_THREADS",
    "TORCH_*",
    "VECLIB_MAXIMUM_THREADS",
];

/// Where a recording was made. Free of personal data unless asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Environment {
    /// `linux`, `macos`.
    pub os: String,
    /// Release of the system, such as `Ubuntu 24.04.2 LTS`; empty if it cannot be told.
    pub os_version: String,
    /// Kernel release; empty if it cannot be told.
    pub kernel: String,
    /// Architecture that this process was built for: `x86_64`, `aarch64`.
    pub architecture: String,
    /// Model of the processor; empty if it cannot be told.
    pub cpu: String,
    /// Instruction sets that numeric libraries select kernels by.
    pub cpu_features: Vec<String>,
    /// Processors that this process may use.
    pub processors: usize,
    /// Threads of the global pool.
    pub threads: usize,
    /// Memory of the machine in bytes; 0 if it cannot be told.
    pub memory_bytes: u64,
    /// Whether this process runs translated (Rosetta): its results are not those of a
    /// native one. `None` where the system cannot tell.
    pub translated: Option<bool>,
    /// Relevant environment variables that are set, values redacted.
    pub variables: BTreeMap<String, String>,
    /// Commit of the git work tree in which the command was given, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git_commit: Option<String>,
    /// Who and where, only when asked for by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<Identity>,
}

/// Names that are left out by default.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Host name.
    pub host: String,
    /// User name.
    pub user: String,
}

impl Environment {
    /// Looks around. What a system does not tell stays empty; nothing fails.
    #[must_use]
    pub fn gather(redaction: &Redaction) -> Self {
        Self {
            os: std::env::consts::OS.to_owned(),
            os_version: redaction.apply(&system::os_version()),
            kernel: redaction.apply(&system::kernel()),
            architecture: std::env::consts::ARCH.to_owned(),
            cpu: system::cpu_model(),
            cpu_features: system::cpu_features(),
            processors: std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
            threads: rayon::current_num_threads(),
            memory_bytes: system::memory_bytes(),
            translated: system::translated(),
            variables: relevant(std::env::vars_os(), redaction),
            git_commit: std::env::current_dir().ok().and_then(|dir| system::git_commit(&dir)),
            identity: redaction.identity(),
        }
    }
}

/// The variables of [`RELEVANT_VARIABLES`] among `variables`, values redacted.
fn relevant(
    variables: impl Iterator<Item = (std::ffi::OsString, std::ffi::OsString)>,
    redaction: &Redaction,
) -> BTreeMap<String, String> {
    let listed = |name: &str| {
        RELEVANT_VARIABLES.iter().any(|pattern| match pattern.strip_suffix('*') {
            Some(prefix) => name.starts_with(prefix),
            None => name == *pattern,
        })
    };
    variables
        .map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned()))
        .filter(|(name, _)| listed(name))
        .map(|(name, value)| {
            let value = redaction.apply(&value);
            (name, if redaction.keeps_names() { value } else { shorten_paths(&value) })
        })
        .collect()
}

/// The end of every path in a list of paths: which library it is, not whose folder it is in.
fn shorten_paths(value: &str) -> String {
    let short = |path: &str| {
        let components: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        match components.as_slice() {
            [.., parent, last] if path.starts_with('/') || path.starts_with("[home]") => {
                format!("…/{parent}/{last}")
            }
            _ => path.to_owned(),
        }
    };
    value.split(':').map(short).collect::<Vec<_>>().join(":")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_relevant_variables_are_kept_and_their_values_are_redacted() {
        let redaction = Redaction::of("/home/ada", "ada", "engine-1");
        let given = [
            ("PYTORCH_ENABLE_MPS_FALLBACK", "1"),
            ("OMP_NUM_THREADS", "4"),
            ("LD_LIBRARY_PATH", "/home/ada/project/x/torch/lib:/opt/lib:relative/x:/lib"),
            ("CUBLAS_WORKSPACE_CONFIG", ":4096:8"),
            ("AWS_SECRET_ACCESS_KEY", "secret"),
            ("HOME", "/home/ada"),
        ];
        let found = relevant(given.iter().map(|(k, v)| ((*k).into(), (*v).into())), &redaction);
        let expected = [
            ("CUBLAS_WORKSPACE_CONFIG", ":4096:8"),
            ("LD_LIBRARY_PATH", "…/torch/lib:…/opt/lib:relative/x:/lib"),
            ("OMP_NUM_THREADS", "4"),
            ("PYTORCH_ENABLE_MPS_FALLBACK", "1"),
        ];
        assert_eq!(found.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn no_name_of_a_person_or_machine_enters_by_default() {
        let redaction = Redaction::detect(false);
        let text = serde_json::to_string(&Environment::gather(&redaction)).unwrap();
        for name in ["HOME", "USER", "HOSTNAME"].iter().filter_map(|v| std::env::var(v).ok()) {
            // A name this short (`root` stays) would hit ordinary words.
            if name.len() > 4 {
                assert!(!text.contains(&name), "{name} in {text}");
            }
        }
        assert!(!text.contains("identity"));
    }

    #[test]
    fn names_enter_when_asked_for() {
        let environment = Environment::gather(&Redaction::detect(true));
        assert!(environment.identity.is_some());
    }
}
