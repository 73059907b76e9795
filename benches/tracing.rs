//! What tracing costs: forward and backward of a synthetic ViT-tiny on `torch:cpu`, traced and
//! untraced passes alternating in one run.
//!
//! `cargo bench --features torch --bench tracing`. Prints the median of each and the median of
//! the ratios of neighbours. `PARITY_BENCH_BATCH` sets the batch (8), `PARITY_BENCH_PAIRS` the
//! number of pairs (9).

#![expect(clippy::print_stdout, reason = "a benchmark prints")]

use std::error::Error;

use tensor_parity::engine::interpreter::{PassOptions, run_pass};
use tensor_parity::engine::torch::TorchEngine;
use tensor_parity::engine::{DeviceSpec, Engine};
use tensor_parity::run::{Data, Prepared, SubjectSpec};
use tensor_parity::synth::{SynthOptions, synth};

fn main() -> Result<(), Box<dyn Error>> {
    let setting = |name: &str, default: usize| {
        std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
    };
    let (batch, pairs) = (setting("PARITY_BENCH_BATCH", 8), setting("PARITY_BENCH_PAIRS", 9));
    let directory = tempfile::tempdir()?;
    let model = directory.path().join("vit-tiny");
    synth(&SynthOptions { family: "vit".to_owned(), size: "tiny".to_owned(), seed: 0, shards: 1 }, &model)?;
    let prepared = Prepared::load(&SubjectSpec { batch, data: Data::Seed, ..SubjectSpec::new(&model) })?;
    let engine = TorchEngine::new(&DeviceSpec::CPU)?;
    let feed = prepared.feed(&prepared.program, &prepared.batch);
    let seconds = |trace: bool| -> Result<(f64, usize), Box<dyn Error>> {
        let options = PassOptions { gradients: true, trace, ..PassOptions::default() };
        let out = run_pass(&engine, &prepared.program, &feed, options)?;
        Ok((out.forward_s + out.backward_s, out.events.len()))
    };
    println!("{} {}, batch {batch}", engine.info().engine, engine.info().version);
    seconds(false)?; // warm
    seconds(true)?;
    let (mut off, mut on, mut ratios, mut events) = (Vec::new(), Vec::new(), Vec::new(), 0);
    for pair in 0..pairs {
        // Either goes first in turn, so that a slow drift of the machine favours neither.
        let first = seconds(pair % 2 == 0)?;
        let second = seconds(pair % 2 != 0)?;
        let ((traced, seen), (plain, _)) = if pair % 2 == 0 { (first, second) } else { (second, first) };
        on.push(traced);
        off.push(plain);
        ratios.push(traced / plain);
        events = seen;
    }
    println!("untraced  {:.4} s (median of {pairs})", median(&mut off));
    println!("traced    {:.4} s, {events} events", median(&mut on));
    println!("ratio     {:.4} (median of pairs)", median(&mut ratios));
    Ok(())
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
