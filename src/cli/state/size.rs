//! `kloop state size`: prints the sizes of the state file and of its content.
//!
//! Start reading at [`run`].

use crate::cli::{CliResult, CommandContext};
use crate::show::columns::{TABLE, align};
use crate::store::past::{StoreSizes, measure_sizes};
use std::path::Path;

/// Show the size of the state file, of the history, and of the objects by kind.
#[derive(clap::Args)]
#[command(
    override_usage = "",
    after_help = "\
# What takes the space?
kloop state size"
)]
pub struct Args {}

/// Runs the verb.
pub fn run(_: Args, context: &mut CommandContext) -> CliResult {
    let api = context.require_existing()?;
    let (path, files) = (api.store().path().display().to_string(), file_bytes(api.store().path()));
    let sizes = api.read(|snapshot| measure_sizes(snapshot))?;
    let reserve = match api.store().reserve_size() {
        0 => String::new(),
        size => format!(", and {} reserved for deletions on a full disk", format_bytes(size)),
    };
    context.print(&format!("{path}: {}{reserve}\n\n{}", format_bytes(files), format_table(&sizes)))
}

/// Adds up the bytes of the state file and of SQLite's other files.
fn file_bytes(path: &Path) -> u64 {
    let beside = ["", "-wal", "-shm"].map(|suffix| format!("{}{suffix}", path.display()));
    beside.iter().filter_map(|path| std::fs::metadata(path).ok()).map(|file| file.len()).sum()
}

fn format_table(sizes: &StoreSizes) -> String {
    let mut text = "CONTENT\tCOUNT\tSIZE\n".to_owned();
    text.push_str(&format!("history\t{}\t{}\n", sizes.log.0, format_bytes(sizes.log.1)));
    for (resource, count, size) in &sizes.objects {
        text.push_str(&format!("{resource}\t{count}\t{}\n", format_bytes(*size)));
    }
    align(&text, TABLE)
}

/// Formats a number of bytes in KiB or MiB.
fn format_bytes(count: u64) -> String {
    match count {
        0..1024 => format!("{count} B"),
        1024..1_048_576 => format!("{} KiB", count.div_ceil(1024)),
        _ => format!("{:.1} MiB", count as f64 / 1_048_576.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_shown_in_units_that_fit() {
        let sizes =
            StoreSizes { log: (12, 3000), objects: vec![("pods".into(), 2, 900), ("secrets".into(), 1, 5 << 20)] };
        let expected =
            "CONTENT   COUNT   SIZE\nhistory   12      3 KiB\npods      2       900 B\nsecrets   1       5.0 MiB\n";
        assert_eq!(format_table(&sizes), expected);
    }
}
