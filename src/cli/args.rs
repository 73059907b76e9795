//! The command line, as parsed. Validation that needs more than one argument is done by
//! the subcommand.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Checks that one checkpoint computes the same everywhere.
///
/// Runs the identical seeded forward and backward pass on several engines and devices,
/// compares loss, metrics, activations and every gradient with bands derived from rounding
/// error, and prints a difference table.
#[derive(Debug, Parser)]
#[command(name = "parity", version, arg_required_else_help = true, after_help = EXIT_CODES)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

const EXIT_CODES: &str = "\
Exit codes: 0 everything within its band; 1 a deviation; 2 a wrong request or an unreadable \
file; 3 recordings that are not comparable; 4 nothing, or not everything that was asked for, \
was compared.";

/// Subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a model on several targets and compare them with the f64 reference.
    Check(CheckArgs),
    /// Show which operators of one target ran where, and what left its device.
    Trace(TraceArgs),
    /// Show the bands that apply to a model, and which line of which policy set each.
    #[command(subcommand)]
    Policy(PolicyCommand),
    /// Make a model directory with random, well-conditioned weights.
    Synth(SynthArgs),
    /// Write the program (the operator graph) of a model as JSON.
    Program(ProgramArgs),
    /// Try every operator of an engine against the f64 reference: what is right, wrong,
    /// unsupported.
    Ops(OpsArgs),
    /// Try the operators of one target in this process (started by `ops`, not by people).
    #[command(name = "__ops", hide = true)]
    OpsTarget {
        /// What to try, as JSON.
        request: String,
    },
    /// Run one planned target in this process (started by `check`, not by people).
    #[command(name = "__target", hide = true)]
    Target {
        /// File with the plan.
        plan: PathBuf,
    },
}

/// How results are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Readable text; colour on a terminal.
    Terminal,
    /// The whole table as JSON.
    Json,
    /// Markdown for a pull-request comment.
    Markdown,
}

/// When to use colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Colour {
    /// On a terminal, unless `NO_COLOR` is set.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// When a target is run a second time without capture and tracing, to show that watching
/// does not change what is watched, and that two runs agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SelfCheck {
    /// For models and batches that are small: it costs a second pass.
    Auto,
    /// Always.
    Always,
    /// Never; the table then says that it was not done.
    Never,
}

/// Whether dropout and batch statistics are on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// As in training: dropout by host-drawn masks, batch statistics.
    Train,
    /// As in evaluation: no dropout, running statistics.
    Eval,
}

/// What a model directory is turned into: shared by several subcommands.
#[derive(Clone, Debug, Args)]
pub struct ModelArgs {
    /// Model directory: `config.json` and `model.safetensors` (or shards with their index).
    pub model: PathBuf,
    /// Samples in the forward and backward pass.
    #[arg(long, default_value_t = 16, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub batch: u32,
    /// Tokens a sample, for language models.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=1_048_576))]
    pub sequence: Option<u32>,
    /// Whether dropout and batch statistics are on.
    #[arg(long, value_enum, default_value_t = Mode::Eval)]
    pub mode: Mode,
}

/// How a target is run: shared by several subcommands.
#[derive(Clone, Debug, Args)]
pub struct RunArgs {
    /// Traced passes a target; a fallback may happen in some of them only. Default: 2 on an
    /// accelerator, 1 on the host.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub steps: Option<u32>,
    /// Memory that a target's process may map, in MiB; beyond, it fails by itself and not the
    /// machine. What is mapped when it starts (libraries: libtorch's are about 1500) counts.
    /// `MIB@TARGET` limits one target. Repeat for several.
    #[arg(long, value_name = "MIB[@TARGET]")]
    pub memory_limit: Vec<String>,
    /// What `torch:mps-emulated`, a software device for tests, lacks or gets wrong:
    /// KIND[:PARAMETER]@OPERATOR, such as `unsupported@aten::_softmax`. Repeat for several.
    #[arg(long, value_name = "DEFICIENCY")]
    pub emulate: Vec<String>,
}

/// Arguments of `parity trace`.
#[derive(Clone, Debug, Args)]
pub struct TraceArgs {
    /// Model directory as for `check`, or the directory of a recording, which then is shown.
    #[command(flatten)]
    pub model: ModelArgs,
    /// Who runs it: engine[:device]@precision, such as `torch:cpu@f32`.
    #[arg(long, short = 't', value_name = "TARGET")]
    pub target: Option<String>,
    /// Seed of everything that is drawn: inputs, labels, masks.
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub seed: u64,
    #[command(flatten)]
    pub run: RunArgs,
    /// Operators to list, those with most own time first.
    #[arg(long, default_value_t = 20, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub top: u32,
    /// Write the events for Perfetto or chrome://tracing to this file.
    #[arg(long, value_name = "FILE")]
    pub chrome: Option<PathBuf>,
    /// How to print: `terminal` or `json`.
    #[arg(long, value_enum, default_value_t = Format::Terminal)]
    pub format: Format,
    /// When to use colour.
    #[arg(long = "color", value_enum, default_value_t = Colour::Auto)]
    pub colour: Colour,
}

/// Arguments of `parity check`.
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
#[derive(Clone, Debug, Args)]
pub struct CheckArgs {
    #[command(flatten)]
    pub model: ModelArgs,
    /// Target to run: engine[:device]@precision, such as `candle:cpu@f32` or
    /// `candle:metal@f16`. Repeat for several. Default: every engine and device that is
    /// here, in f32.
    #[arg(long = "target", short = 't', value_name = "TARGET")]
    pub targets: Vec<String>,
    /// Seed of everything that is drawn: inputs, labels, masks.
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub seed: u64,
    /// Labelled data (safetensors with inputs and `labels`). Default: `validation.safetensors`
    /// in the model directory; without it, inputs and labels are drawn from the seed.
    #[arg(long, value_name = "FILE")]
    pub data: Option<PathBuf>,
    /// Draw inputs and labels from the seed although the model directory has labelled data.
    #[arg(long, conflicts_with = "data")]
    pub synthetic_data: bool,
    /// Policy file with tolerance bands; it overlays the built-in one.
    #[arg(long, value_name = "FILE")]
    pub policy: Option<PathBuf>,
    /// Directory for recordings and tables.
    #[arg(long, default_value = "parity-out", value_name = "DIR")]
    pub out: PathBuf,
    /// How to print the table. All forms are also written to the output directory.
    #[arg(long, value_enum, default_value_t = Format::Terminal)]
    pub format: Format,
    /// Print every row, not only the ones to read first.
    #[arg(long)]
    pub all_rows: bool,
    /// When to use colour.
    #[arg(long = "color", value_enum, default_value_t = Colour::Auto)]
    pub colour: Colour,
    /// A target whose device is absent is noted, not held against the check.
    #[arg(long)]
    pub if_available: bool,
    /// Run every target again, although a finished recording of the same plan exists.
    #[arg(long)]
    pub fresh: bool,
    /// Run each target a second time without capture and tracing, and compare bit for bit.
    #[arg(long, value_enum, default_value_t = SelfCheck::Auto)]
    pub self_check: SelfCheck,
    #[command(flatten)]
    pub run: RunArgs,
    /// Do not read or write the cache of reference recordings.
    #[arg(long)]
    pub no_cache: bool,
    /// End a target that reports nothing for this many seconds (default 600).
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86400))]
    pub silence: Option<u64>,
    /// Plant a fault: `KIND[:PARAMETER]@TARGET`. For tests of the checker itself.
    #[arg(long, hide = true, value_name = "FAULT")]
    pub plant: Vec<String>,
}

/// Arguments of `parity policy`.
#[derive(Debug, Subcommand)]
pub enum PolicyCommand {
    /// Print the bands that a model would get and which line set each.
    Show(PolicyShowArgs),
}

/// Arguments of `parity policy show`.
#[derive(Clone, Debug, Args)]
pub struct PolicyShowArgs {
    #[command(flatten)]
    pub model: ModelArgs,
    /// Precision to show the bands for.
    #[arg(long, default_value = "f32", value_name = "NAME")]
    pub precision: String,
    /// Policy file with tolerance bands; it overlays the built-in one.
    #[arg(long, value_name = "FILE")]
    pub policy: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `parity synth`.
#[derive(Clone, Debug, Args)]
pub struct SynthArgs {
    /// Architecture family, such as `vit` or `mlp`.
    pub family: String,
    /// Size by name; an unknown one is answered with the list.
    #[arg(long, default_value = "tiny", value_name = "NAME")]
    pub size: String,
    /// Seed of the weights.
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub seed: u64,
    /// Files to split the weights into.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub shards: u32,
    /// Directory to make; must not exist or be empty.
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
}

/// Arguments of `parity program`.
#[derive(Clone, Debug, Args)]
pub struct ProgramArgs {
    #[command(flatten)]
    pub model: ModelArgs,
    /// Precision to rewrite the program for; without it the program is nominally f32.
    #[arg(long, value_name = "NAME")]
    pub precision: Option<String>,
    /// File to write; standard output without it.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// Arguments of `parity ops`.
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
#[derive(Clone, Debug, Args)]
pub struct OpsArgs {
    /// Target to try: engine[:device], such as `candle:cpu` or `torch:cuda`. Repeat for
    /// several. Default: every engine and device that is here.
    #[arg(long = "target", short = 't', value_name = "TARGET")]
    pub targets: Vec<String>,
    /// Only this operator (its `ATen` name). Repeat for several.
    #[arg(long = "op", value_name = "NAME")]
    pub operators: Vec<String>,
    /// Only float inputs of this dtype: f64, f32, f16 or bf16. Repeat for several.
    #[arg(long = "dtype", value_name = "DTYPE")]
    pub dtypes: Vec<String>,
    /// Only this trial, by the name that a table gives it. Repeat for several.
    #[arg(long = "case", value_name = "NAME")]
    pub cases: Vec<String>,
    /// Small sizes and the variants that find most: a fraction of the time.
    #[arg(long)]
    pub quick: bool,
    /// Seed of all values.
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub seed: u64,
    /// Policy file with tolerance bands; it overlays the built-in one.
    #[arg(long, value_name = "FILE")]
    pub policy: Option<PathBuf>,
    /// How to print the table.
    #[arg(long, value_enum, default_value_t = Format::Terminal)]
    pub format: Format,
    /// The same as `--format json`.
    #[arg(long, conflicts_with = "format")]
    pub json: bool,
    /// The same as `--format markdown`.
    #[arg(long, conflicts_with_all = ["format", "json"])]
    pub markdown: bool,
    /// When to use colour.
    #[arg(long = "color", value_enum, default_value_t = Colour::Auto)]
    pub colour: Colour,
    /// A target whose device is absent is noted, not held against the request.
    #[arg(long)]
    pub if_available: bool,
    /// Write docs/operators.md (in a checkout of this project) instead of printing.
    #[arg(long, hide = true, value_name = "FILE")]
    pub document: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }
}
