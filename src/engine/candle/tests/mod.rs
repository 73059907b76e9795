//! The adapter on the CPU: what it declares, what it computes, what candle gets wrong.

mod against_reference;
mod cases;
mod declared;
mod defects;
mod engine;
mod gradients;
mod harness;
