//! `kloop image resolve`: shows the program of an image, the rule that found it, and the other
//! rules that were tried.

use crate::apiserver::read::{self, ListSelection};
use crate::cli::{CliResult, CommandContext, Failure};
use crate::kinds::image::{KIND, pattern::is_path, reference};
use crate::kinds::view::{Describe, brief_words, view_words};
use crate::kubelet::image;
use crate::runtime::image::{Environment, ImageQuery, find, programs};
use crate::show::describe::render;

/// Show the program of an image on this machine, the rule that found it, and the other rules that
/// were tried.
///
/// Programs are searched on the PATH of this command; for pods, on that of kloop reconcile. Relative paths are relative to the
/// current folder, as they are to the folder of a manifest.
#[derive(clap::Args)]
#[command(
    override_usage = "IMAGE [-- ARGS...]",
    after_help = "\
# What does a container with this image run?
kloop image resolve nginx:1.25

# And with these args?
kloop image resolve busybox -- sleep 5"
)]
pub struct Args {
    /// IMAGE.
    #[arg(value_name = "IMAGE")]
    image: String,
    /// The container's args.
    #[arg(last = true, value_name = "ARGS")]
    args: Vec<String>,
}

/// Runs the verb.
pub fn run(args: Args, context: &mut CommandContext) -> CliResult {
    if !is_path(&args.image)
        && let Err(why) = reference::parse(&args.image)
    {
        return Err(Failure::plain(format!("couldn't parse image name {:?}: {why}", args.image)));
    }
    context.allow_new_cluster();
    let objects = context.read_view(|txn| read::list(txn, &KIND, None, &ListSelection::default()))?;
    let object = image::best_match(objects.iter(), &args.image);
    let environment = Environment::inherited();
    let path = programs::search_path(object.as_ref().map(|image| image.path()).unwrap_or_default(), environment.path());
    let image_start =
        object.as_ref().map(|image| image.start_without_container()).transpose().map_err(Failure::plain)?;
    let here = std::env::current_dir().ok();
    let query = ImageQuery {
        image: &args.image,
        object: image_start.as_ref(),
        manifest_dir: here.as_deref().and_then(|folder| folder.to_str()),
        path: &path,
        args: &args.args,
        is_before_build: true,
    };
    let (found, mut tried) = find(&query);
    let mut out = Describe::new();
    out.field(0, "Image", &args.image);
    let failed = if found.is_none() { tried.pop() } else { None };
    match found {
        Some(found) => {
            out.field(0, "Rule", &found.rule);
            let program = found.argv.first().map_or("<none>", String::as_str);
            out.field(0, "Program", program);
            let words: Vec<&str> = found.argv.iter().skip(1).map(String::as_str).collect();
            out.field(0, "Arguments", if words.is_empty() { "<none>".into() } else { brief_words(&words) });
            if let Some(folder) = &found.folder {
                out.field(0, "Working Dir", folder);
            }
            if let Some(build) = image_start.as_ref().and_then(|image| image.build.as_ref()) {
                out.heading(0, "Build");
                out.field(1, "Command", view_words(&build.command.iter().map(String::as_str).collect::<Vec<_>>()));
                out.field(1, "Working Dir", build.folder.as_deref().unwrap_or("<none>"));
            }
            let watched: Vec<&str> = object.iter().flat_map(|image| image.watch()).collect();
            if !watched.is_empty() {
                out.values(0, "Watch", watched);
            }
        }
        None => out.field(0, "Rule", "<none>"),
    }
    out.values(0, "Tried", tried.iter().map(|(rule, why)| format!("{rule}: {why}")));
    context.print(&render(&out))?;
    failed.map_or(Ok(()), |(rule, why)| Err(Failure::plain(format!("{rule}: {why}"))))
}
