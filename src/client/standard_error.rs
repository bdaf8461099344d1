//! Lines on standard error.
//!
//! A command goes on when nobody reads them: a closed pipe behind `2>&1 | head` must not end an apply in its middle. The standard
//! library's macros panic there. Never: writes to standard output. Start reading at [`print_line`].

use std::fmt::Arguments;
use std::io::Write;

/// Prints a text. Errors are ignored.
pub fn print(text: Arguments) {
    let _ = std::io::stderr().lock().write_fmt(text);
}

/// Prints a line. Errors are ignored.
pub fn print_line(line: Arguments) {
    print(format_args!("{line}\n"));
}
