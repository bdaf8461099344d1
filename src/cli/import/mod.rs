//! `kloop import`: converts a Compose file to manifests, and lists the fields that it left out.
//!
//! Never: leaves a field out without saying so. Start reading at [`compose::convert`], which is pure; this module reads and writes files.

mod compose;
mod mounted_files;
mod substitute;
mod values;

use super::manifests::input;
use super::{CliResult, CommandContext, Failure};
use crate::object::{Object, io_error_text, yaml};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Write manifests for the services of a Compose file, and list the fields that were left out.
///
/// A service becomes a Deployment, or a Job if it is not to be restarted, and a Service for its ports. Named volumes become
/// persistent volume claims, bind mounts hostPath volumes, health checks readiness probes, and depends_on init containers that
/// wait for a port. Secrets and configs become mounted files. A published port answers at localhost, as with Compose. Variables are
/// filled in from the environment and from the file .env.
#[derive(clap::Args)]
#[command(
    override_usage = "compose.yaml [--output DIRECTORY]",
    after_help = "\
# Write manifests to the folder manifests, and run them
kloop import compose.yaml
kloop up manifests

# Print them
kloop import compose.yaml --output -"
)]
pub struct Args {
    /// The Compose file.
    #[arg(value_name = "FILE", required = true)]
    file: PathBuf,
    /// Folder for the manifests, a file for each service; - for standard output.
    #[arg(short, long, default_value = "manifests", value_name = "DIRECTORY")]
    output: String,
    /// Replace manifests that exist.
    #[arg(long)]
    force: bool,
}

/// Runs the verb.
pub fn run(args: Args, context: &mut CommandContext) -> CliResult {
    let refused = |what: String| Failure::plain(format!("{}: {what}", args.file.display()));
    let folder = args.file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let folder = std::path::absolute(folder)?;
    let bytes = input::read(&args.file).map_err(|error| refused(io_error_text(error)))?;
    let text = yaml::decode_bytes(&bytes).map_err(|error| refused(error.to_string()))?;
    let variables = read_variables(&folder)?;
    let documents = yaml::documents(&text).map_err(|error| refused(error.to_string()))?;
    let [document] = &documents[..] else {
        return Err(refused(format!("expected one document, found {}", documents.len())));
    };
    let mut missing = Vec::new();
    let file = substitute::fill_in(&document.value, &variables, &mut missing).map_err(refused)?;
    let read_env = |name: &str| {
        let text = input::read_to_string(folder.join(name)).map_err(io_error_text)?;
        Ok(substitute::parse_env_file(&text))
    };
    let converted = compose::convert(&file, &folder, &variables, &read_env).map_err(refused)?;
    let left_out = missing.iter().map(|name| format!("the variable {name} is not set: it is empty"));
    let left_out: Vec<String> = left_out.chain(converted.left_out).collect();
    write(&args, context, &converted.files)?;
    if !left_out.is_empty() {
        context.print_notice("left out, or different from Compose:");
        left_out.iter().for_each(|line| context.print_notice(&format!("  {line}")));
    }
    if args.output != "-" {
        context.print_notice(&format!("hint: kloop up {} runs them", args.output));
    }
    Ok(())
}

/// Returns the variables of the file .env, if there is one; those of the environment replace them.
fn read_variables(folder: &Path) -> CliResult<BTreeMap<String, String>> {
    let path = folder.join(".env");
    let text = match input::read_to_string(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        read => read.map_err(|error| {
            Failure::plain(format!("cannot read {}: {error}", path.display(), error = io_error_text(error)))
        })?,
    };
    let mut variables: BTreeMap<String, String> = substitute::parse_env_file(&text).into_iter().collect();
    variables.extend(
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?))),
    );
    Ok(variables)
}

fn write(args: &Args, context: &mut CommandContext, files: &BTreeMap<String, Vec<Object>>) -> CliResult {
    let text =
        |objects: &[Object]| objects.iter().map(|object| yaml::to_yaml(&object.0)).collect::<Vec<_>>().join("---\n");
    if args.output == "-" {
        let all: Vec<String> = files.values().map(|objects| text(objects)).collect();
        return context.print(&all.join("---\n"));
    }
    let folder = Path::new(&args.output);
    let failed = |path: &Path, error: std::io::Error| {
        Failure::plain(format!("cannot write {}: {}", path.display(), io_error_text(error)))
    };
    std::fs::create_dir_all(folder).map_err(|error| failed(folder, error))?;
    let paths: Vec<(PathBuf, String)> =
        files.iter().map(|(name, objects)| (folder.join(format!("{name}.yaml")), text(objects))).collect();
    if let Some((path, _)) = paths.iter().find(|(path, _)| !args.force && path.exists()) {
        return Err(Failure::plain(format!("{} exists; --force replaces it", path.display())));
    }
    for (path, text) in &paths {
        std::fs::write(path, text).map_err(|error| failed(path, error))?;
        context.print_line(&format!("{} written", path.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unreadable_env_file_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        assert!(read_variables(folder.path()).is_ok(), "a missing file has no variables");
        std::fs::write(folder.path().join(".env"), "KLOOP_TEST_A=1").unwrap();
        assert_eq!(read_variables(folder.path()).unwrap()["KLOOP_TEST_A"], "1");
        std::fs::write(folder.path().join(".env"), b"A=\xff").unwrap();
        let error = read_variables(folder.path()).unwrap_err().to_string();
        assert!(error.starts_with("error: cannot read ") && error.ends_with(".env: it is not UTF-8"), "{error}");
    }
}
