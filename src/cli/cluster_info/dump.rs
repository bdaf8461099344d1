//! `kloop cluster-info dump`: objects and logs for diagnosing a problem.

use crate::cli::cluster::rest;
use crate::cli::command_line::flags::PrintFlags;
use crate::cli::{CliResult, CommandContext, Failure};
use crate::object::{io_error_text, time};
use crate::show::print::{ObjectPrinter, OutputFormat};
use jiff::SignedDuration;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// Dump relevant information for debugging and diagnosis.
///
/// By default, dumps everything to stdout. You can optionally specify a directory with --output-directory, in which a set of files is made.
/// By default, only dumps things in the current namespace and 'kube-system' namespace, but you can switch to a different namespace with
/// the --namespaces flag, or specify --all-namespaces to dump all namespaces. The logs of all of the pods are dumped, too.
#[derive(clap::Args)]
#[command(
    override_usage = "[flags]",
    after_help = "\
# Dump current cluster state to stdout
kloop cluster-info dump

# Dump current cluster state to /path/to/cluster-state
kloop cluster-info dump --output-directory=/path/to/cluster-state

# Dump all namespaces to stdout
kloop cluster-info dump --all-namespaces"
)]
pub struct Args {
    /// If true, dump all namespaces. If true, --namespaces is ignored.
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// A comma separated list of namespaces to dump.
    #[arg(long, value_name = "NAMESPACES", value_delimiter = ',')]
    namespaces: Vec<String>,
    #[command(flatten)]
    print: PrintFlags,
    /// The directory of the files. If empty or '-' uses stdout, otherwise creates a directory hierarchy in that directory.
    #[arg(long, value_name = "DIR", default_value = "")]
    output_directory: String,
    /// The length of time to wait until at least one pod is running. Logs of pods that do not run yet are left out.
    #[arg(long, value_name = "DURATION", default_value = "20s", value_parser = time::parse_duration)]
    pod_running_timeout: SignedDuration,
}

/// The lists of a namespace: the file, and the path below the namespace.
const LISTS: [(&str, &str, &str); 7] = [
    ("events", "api/v1", "events"),
    ("replication-controllers", "api/v1", "replicationcontrollers"),
    ("services", "api/v1", "services"),
    ("daemonsets", "apis/apps/v1", "daemonsets"),
    ("deployments", "apis/apps/v1", "deployments"),
    ("replicasets", "apis/apps/v1", "replicasets"),
    ("pods", "api/v1", "pods"),
];

/// Runs the verb.
pub fn run(args: &Args, context: &mut CommandContext) -> CliResult {
    args.print.format(false, false)?;
    let folder = Some(args.output_directory.as_str()).filter(|folder| !matches!(*folder, "" | "-")).map(PathBuf::from);
    dump_list(args, context, folder.as_deref(), "nodes", "/api/v1/nodes")?;
    for namespace in namespaces(args, context)? {
        let place = folder.as_ref().map(|folder| folder.join(&namespace));
        for (file, group, plural) in LISTS {
            let path = format!("/{group}/namespaces/{namespace}/{plural}");
            dump_list(args, context, place.as_deref(), file, &path)?;
        }
        dump_logs(context, place.as_deref(), &namespace)?;
    }
    match folder {
        Some(folder) => context.print_line(&format!("Cluster info dumped to {}", folder.display())),
        None => Ok(()),
    }
}

fn namespaces(args: &Args, context: &mut CommandContext) -> CliResult<Vec<String>> {
    if args.all_namespaces {
        return names(&rest::read_document(context, "/api/v1/namespaces", "")?);
    }
    if !args.namespaces.is_empty() {
        return Ok(args.namespaces.clone());
    }
    Ok(vec!["kube-system".to_owned(), context.namespace().to_owned()])
}

fn names(list: &Value) -> CliResult<Vec<String>> {
    let items = list["items"].as_array().into_iter().flatten();
    Ok(items.filter_map(|item| item["metadata"]["name"].as_str().map(str::to_owned)).collect())
}

fn dump_list(args: &Args, context: &mut CommandContext, folder: Option<&Path>, file: &str, path: &str) -> CliResult {
    let list = rest::read_document(context, path, "")?;
    let format = args.print.format(false, false)?;
    let end = match &format {
        None | Some(OutputFormat::Json) => "json",
        Some(OutputFormat::Yaml) => "yaml",
        Some(_) => "txt",
    };
    let mut printer = ObjectPrinter::new(format.unwrap_or(OutputFormat::Json), args.print.show_managed_fields);
    write(context, folder, &format!("{file}.{end}"), &printer.object(&list)?)
}

fn dump_logs(context: &mut CommandContext, folder: Option<&Path>, namespace: &str) -> CliResult {
    let pods = rest::read_document(context, &format!("/api/v1/namespaces/{namespace}/pods"), "")?;
    for pod in pods["items"].as_array().into_iter().flatten() {
        let name = pod["metadata"]["name"].as_str().unwrap_or_default();
        let mut text = String::new();
        let lists = ["initContainers", "containers"].iter().flat_map(|list| pod["spec"][*list].as_array());
        for container in lists.flatten().filter_map(|container| container["name"].as_str()) {
            let path = format!("/api/v1/namespaces/{namespace}/pods/{name}/log?container={container}");
            let log = log_text(rest::read(context, &path, ""))?;
            let about = format!("logs for container {container} of pod {namespace}/{name}");
            text += &format!("==== START {about} ====\n{log}==== END {about} ====\n");
        }
        write(context, folder.map(|folder| folder.join(name)).as_deref(), "logs.txt", &text)?;
    }
    Ok(())
}

/// Returns a log. As in kubectl, the text of a refusal takes its place.
fn log_text(read: CliResult<Vec<u8>>) -> CliResult<String> {
    match read {
        Ok(log) => Ok(String::from_utf8_lossy(&log).into_owned()),
        Err(failure @ Failure::Api { .. }) => Ok(format!("Request log error: {failure}\n")),
        Err(failure) => Err(failure),
    }
}

/// Writes a file, or prints the text when no folder was asked for.
fn write(context: &mut CommandContext, folder: Option<&Path>, file: &str, text: &str) -> CliResult {
    let Some(folder) = folder else { return context.print(text) };
    let written = fs::create_dir_all(folder).and_then(|()| fs::write(folder.join(file), text));
    written.map_err(|error| {
        Failure::plain(format!("cannot write {}: {}", folder.join(file).display(), io_error_text(error)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::{Reason, Status};

    #[test]
    fn refusal_takes_the_place_of_the_log() {
        assert_eq!(log_text(Ok(b"one\n".to_vec())).unwrap(), "one\n");
        let refused = || Failure::from(Status::new(Reason::BadRequest, "it is gone"));
        assert_eq!(
            log_text(Err(refused())).unwrap(),
            "Request log error: Error from server (BadRequest): it is gone\n"
        );
        assert!(log_text(Err(Failure::BrokenPipe)).is_err());
    }
}
