//! The program as its users meet it: arguments and standard input in; standard output, standard
//! error and an exit status out.

mod bad_input;
mod calibrate;
mod commands;
mod generate;
mod hybrid_f32;
mod opencl;
mod report;
mod support;
mod verify;

#[cfg(unix)]
mod signals;
