//! Diagnostics of kloop itself on standard error, for those who work on it: `KLOOP_LOG`.
//!
//! Spans are made where time is spent: in `reconcile`, `serve` and `store`. One line for each span that closes says how long it took.
//! Without the variable nothing subscribes to them, and a span costs the look at one number.

use super::{CliResult, Failure};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::FmtSpan;

/// The variable that holds the filter.
const VARIABLE: &str = "KLOOP_LOG";

/// Starts to print the spans that the environment asks for; none unless it does.
pub fn start() -> CliResult {
    let Some(filter) = std::env::var_os(VARIABLE).filter(|filter| !filter.is_empty()) else { return Ok(()) };
    let filter = parse(&filter.to_string_lossy()).map_err(Failure::plain)?;
    let lines = tracing_subscriber::fmt().with_writer(std::io::stderr).with_span_events(FmtSpan::CLOSE);
    lines.with_ansi(false).with_env_filter(filter).init();
    Ok(())
}

/// Parses a filter. A word alone is a level or a module of kloop, so that a mistyped level is an error.
fn parse(text: &str) -> Result<EnvFilter, String> {
    let refuse = |why: &str| {
        format!(
            "invalid filter {text:?} in {VARIABLE}: {why}; write a level (error, warn, info, debug, trace, off) or a module and a \
             level, such as kloop::reconcile=trace"
        )
    };
    for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
        if !word.starts_with("kloop") && !word.contains(['=', '[']) && word.parse::<LevelFilter>().is_err() {
            return Err(refuse(&format!("{word:?} is no level")));
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
