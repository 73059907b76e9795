//! Placement on recorded events, one kind of fallback after the other.

use super::*;

pub(super) fn tensor(shape: &[usize], dtype: &str, device: &str) -> TensorMeta {
    TensorMeta { shape: shape.to_vec(), dtype: dtype.to_owned(), device: device.to_owned(), number: false }
}

pub(super) fn event(seq: u64, op: &str) -> OperatorEvent {
    OperatorEvent { seq, op: op.to_owned(), start_ns: seq * 10, duration_ns: 10, ..OperatorEvent::default() }
}

const MPS: &str = "mps:0";

fn on(device: &str, seq: u64, op: &str) -> OperatorEvent {
    let meta = tensor(&[2, 3], "f32", device);
    OperatorEvent {
        inputs: vec![meta.clone()],
        outputs: vec![meta],
        path: "encoder.0".to_owned(),
        ..event(seq, op)
    }
}

fn inside(parent: u64, depth: u32, event: OperatorEvent) -> OperatorEvent {
    OperatorEvent { parent: Some(parent), depth, ..event }
}

/// `to[..] = from[..]`.
fn copy(seq: u64, to: &str, from: &str) -> OperatorEvent {
    let (to, from) = (tensor(&[2, 3], "f32", to), tensor(&[2, 3], "f32", from));
    OperatorEvent { inputs: vec![to.clone(), from], outputs: vec![to], ..event(seq, "aten::copy_") }
}

/// What the dispatcher shows when an operator goes to the CPU.
fn fallen(first: u64, op: &str) -> Vec<OperatorEvent> {
    let resized = OperatorEvent {
        inputs: vec![tensor(&[2, 3], "f32", "cpu"), tensor(&[2, 3], "f32", MPS)],
        ..event(first + 3, "aten::_copy_from_and_resize")
    };
    let mut events = vec![
        on(MPS, first, op),
        inside(first, 1, event(first + 1, "aten::_to_cpu")),
        inside(first + 1, 2, copy(first + 2, "cpu", MPS)),
        inside(first, 1, resized),
    ];
    count_transfers(&mut events);
    events
}

fn one_pass(events: &[OperatorEvent]) -> Placement {
    detect(MPS, &[PassTrace { inputs: &[], events }])
}

fn kinds(placement: &Placement) -> Vec<(FallbackKind, &str)> {
    placement.fallbacks.iter().map(|f| (f.kind, f.operator.as_str())).collect()
}

#[test]
fn a_pass_that_stays_on_its_device_is_as_asked() {
    let placement = one_pass(&[on(MPS, 0, "aten::linear"), inside(0, 1, on(MPS, 1, "aten::addmm"))]);
    assert!(placement.as_asked(), "{placement:?}");
    assert_eq!(placement.operators[MPS], 2);
}

#[test]
fn an_operator_that_the_dispatcher_sends_to_the_cpu_is_found_with_its_place_and_bytes() {
    let mut events = vec![on(MPS, 0, "aten::linear")];
    events.extend(fallen(1, "aten::_softmax"));
    let placement = one_pass(&events);
    assert_eq!(kinds(&placement), [(FallbackKind::OperatorOnCpu, "aten::_softmax")]);
    let found = &placement.fallbacks[0];
    assert_eq!((found.bytes_to_host, found.bytes_to_device), (24, 24));
    assert_eq!(
        (found.path.as_str(), &found.shapes, &found.dtypes),
        ("encoder.0", &vec![vec![2, 3]], &vec!["f32".to_owned()])
    );
    assert_eq!((found.calls_per_pass(), found.in_each_step()), (1, true));
    assert!(found.share > 0.0 && found.share < 1.0);
    assert!(!placement.as_asked() && !placement.device_unused());
}

#[test]
fn an_operator_that_the_backend_always_sends_to_the_cpu_is_told_apart_with_its_reason() {
    let placement = one_pass(&fallen(0, "aten::col2im"));
    assert_eq!(kinds(&placement), [(FallbackKind::AlwaysOnCpu, "aten::col2im")]);
    assert!(placement.fallbacks[0].reason.contains("MPS"));
    // The table is about mps, not about every device.
    let on_cuda: Vec<OperatorEvent> = fallen(0, "aten::col2im")
        .into_iter()
        .map(|mut event| {
            for meta in event.inputs.iter_mut().chain(&mut event.outputs).filter(|meta| meta.device == MPS) {
                "cuda:0".clone_into(&mut meta.device);
            }
            event
        })
        .collect();
    let placement = detect("cuda:0", &[PassTrace { inputs: &[], events: &on_cuda }]);
    assert_eq!(kinds(&placement), [(FallbackKind::OperatorOnCpu, "aten::col2im")]);
}

#[test]
fn a_fallback_in_one_step_of_many_is_told_apart_from_one_in_each() {
    let (clean, fell) = (vec![on(MPS, 0, "aten::_softmax")], fallen(0, "aten::_softmax"));
    let passes: Vec<PassTrace<'_>> =
        [&clean, &fell, &clean].into_iter().map(|events| PassTrace { inputs: &[], events }).collect();
    let placement = detect(MPS, &passes);
    assert_eq!(placement.fallbacks[0].calls, [0, 1, 0]);
    assert!(!placement.fallbacks[0].in_each_step());
}

#[test]
fn the_same_operator_in_forward_and_backward_gives_two_rows() {
    let mut events = fallen(0, "aten::mul");
    events.extend(fallen(10, "aten::mul").into_iter().map(|e| OperatorEvent { phase: Phase::Backward, ..e }));
    let placement = one_pass(&events);
    let phases: Vec<Phase> = placement.fallbacks.iter().map(|f| f.phase).collect();
    assert_eq!(phases, [Phase::Forward, Phase::Backward]);
}

#[test]
fn a_host_round_trip_outside_an_operator_is_its_own_kind() {
    let to = OperatorEvent { outputs: vec![tensor(&[2, 3], "f32", "cpu")], ..on(MPS, 1, "aten::_to_copy") };
    let mut events = vec![on(MPS, 0, "aten::mul"), to, inside(1, 1, copy(2, "cpu", MPS))];
    count_transfers(&mut events);
    let placement = one_pass(&events);
    assert_eq!(kinds(&placement), [(FallbackKind::HostRoundTrip, "aten::_to_copy")]);
    assert_eq!(placement.fallbacks[0].bytes_to_host, 24);
}

#[test]
fn an_operator_with_all_its_tensors_on_the_host_ran_on_the_cpu() {
    let events = [on(MPS, 0, "mul"), on("cpu", 1, "softmax"), inside(1, 1, on("cpu", 2, "exp"))];
    let placement = one_pass(&events);
    assert_eq!(kinds(&placement), [(FallbackKind::OperatorOnCpu, "softmax")]);
}

#[test]
fn a_tensor_on_the_host_among_tensors_of_the_device_is_misplaced() {
    let mut mixed = on(MPS, 0, "aten::add");
    mixed.inputs.push(tensor(&[3], "f32", "cpu"));
    let placement = one_pass(&[mixed]);
    assert_eq!(kinds(&placement), [(FallbackKind::MisplacedTensor, "aten::add")]);
    assert!(placement.fallbacks[0].reason.contains("argument 1 [3] f32"));
}

#[test]
fn a_plain_number_among_tensors_of_the_device_is_no_finding() {
    let mut with_number = on(MPS, 0, "aten::add");
    with_number.inputs.push(TensorMeta { number: true, ..tensor(&[], "f64", "cpu") });
    assert!(one_pass(&[with_number]).as_asked());
}

#[test]
fn a_program_input_on_the_wrong_device_is_named() {
    let inputs = [("head.weight".to_owned(), "cpu".to_owned()), ("x".to_owned(), MPS.to_owned())];
    let placement = detect(MPS, &[PassTrace { inputs: &inputs, events: &[on(MPS, 0, "aten::mul")] }]);
    assert_eq!(kinds(&placement), [(FallbackKind::MisplacedTensor, "head.weight")]);
}

#[test]
fn a_whole_pass_on_the_cpu_is_not_a_pass_of_the_device() {
    let placement = one_pass(&[on("cpu", 0, "aten::linear"), on("cpu", 1, "aten::mul")]);
    assert_eq!(kinds(&placement), [(FallbackKind::DeviceNotAsked, "the whole pass")]);
    assert!(placement.device_unused());
    assert!((placement.fallbacks[0].share - 1.0).abs() < 1e-12);
}

#[test]
fn another_index_is_another_device() {
    let placement =
        detect("cuda:0", &[PassTrace { inputs: &[], events: &[on("cuda:0", 0, "a"), on("cuda:1", 1, "b")] }]);
    assert_eq!(kinds(&placement), [(FallbackKind::DeviceNotAsked, "b")]);
    // An accelerator where the CPU was asked for, too, and all the more the whole pass.
    let events = [on("cpu", 0, "a"), on("cuda:1", 1, "b")];
    let placement = detect("cpu", &[PassTrace { inputs: &[], events: &events }]);
    assert_eq!(kinds(&placement), [(FallbackKind::DeviceNotAsked, "b")]);
    let placement = detect("cpu", &[PassTrace { inputs: &[], events: &events[1..] }]);
    assert_eq!(kinds(&placement), [(FallbackKind::DeviceNotAsked, "the whole pass")]);
}

#[test]
fn a_pass_on_the_cpu_that_asked_for_the_cpu_is_as_asked() {
    let placement = detect("cpu", &[PassTrace { inputs: &[], events: &[on("cpu", 0, "aten::linear")] }]);
    assert!(placement.as_asked());
}

#[test]
fn a_pass_without_events_is_not_as_asked() {
    assert!(!one_pass(&[]).as_asked());
    assert!(one_pass(&[]).device_unused());
}

#[test]
fn a_damaged_trace_with_a_cycle_ends() {
    let events = [inside(1, 0, on(MPS, 0, "a")), inside(0, 0, on(MPS, 1, "aten::_to_cpu"))];
    let placement = one_pass(&events);
    assert_eq!(kinds(&placement), [(FallbackKind::OperatorOnCpu, "a")]);
}

#[test]
fn the_state_of_a_random_generator_lies_on_the_host_by_right() {
    let seed = tensor(&[], "i64", "cpu");
    let attention = |extra: &TensorMeta| OperatorEvent {
        inputs: vec![tensor(&[2, 4], "f32", MPS), extra.clone()],
        ..on(MPS, 0, "aten::_scaled_dot_product_efficient_attention_backward")
    };
    assert_eq!(kinds(&one_pass(&[attention(&seed)])), []);
    // A number of the program's own kind, or more than one of them, is data.
    for data in [tensor(&[], "f32", "cpu"), tensor(&[1], "i64", "cpu")] {
        assert_eq!(kinds(&one_pass(&[attention(&data)]))[0].0, FallbackKind::MisplacedTensor);
    }
}
