//! kloop's own diagnostics on standard error, for its developers: `KLOOP_LOG`.
//!
//! Spans exist where time is spent: in `reconcile`, `serve` and `store`. Each span that closes
//! prints one line with its duration. Without the variable there is no subscriber, and a span costs
//! the check of one number.

use crate::cli::{CliResult, Failure};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::FmtSpan;

/// The environment variable with the filter.
const VARIABLE: &str = "KLOOP_LOG";

/// Starts to print the spans that `KLOOP_LOG` selects; does nothing without it.
pub fn start() -> CliResult {
    let Some(filter) = std::env::var_os(VARIABLE).filter(|filter| !filter.is_empty()) else { return Ok(()) };
    let filter = parse(&filter.to_string_lossy()).map_err(Failure::plain)?;
    let lines = tracing_subscriber::fmt().with_writer(std::io::stderr).with_span_events(FmtSpan::CLOSE);
    lines.with_ansi(false).with_env_filter(filter).init();
    Ok(())
}

/// Parses a filter. A single word is a level or a module of kloop, so that a mistyped level is an
/// error.
fn parse(text: &str) -> Result<EnvFilter, String> {
    let refuse = |why: &str| {
        format!(
            "invalid filter {text:?} in {VARIABLE}: {why}; write a level (error, warn, info, debug, trace, off) or a module and a \
             level, such as kloop::reconcile=trace"
        )
    };
    for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
        if !word.starts_with("kloop") && !word.contains(['=', '[']) && word.parse::<LevelFilter>().is_err() {
            return Err(refuse(&format!("{word:?} is not a level")));
        }
    }
    EnvFilter::builder().parse(text).map_err(|error| refuse(&error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filter_is_a_level_or_a_module_with_one() {
        for text in [
            "debug",
            "TRACE",
            "kloop",
            "kloop=debug",
            "kloop::reconcile=trace,kloop::store=debug",
            "off",
            "[tick]=debug",
        ] {
            assert!(parse(text).is_ok(), "{text}");
        }
        for text in ["debgu", "kloop=loud", "kloop=debug,verbose", "=debug=", "kloop[tick=debug"] {
            let why = parse(text).expect_err(text);
            assert!(why.starts_with(&format!("invalid filter {text:?} in KLOOP_LOG: ")), "{why}");
        }
    }
}
