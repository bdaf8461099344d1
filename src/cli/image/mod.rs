//! Verbs about images: list them, show how an image is resolved, and set its program.
//!
//! Knows: Image objects and built-in images. Start reading at [`resolve`](mod@resolve).

mod list;
mod resolve;
mod set;

use super::{CliResult, CommandContext};
use clap::Subcommand;

/// Manage which programs container images stand for on this machine.
///
/// Nothing is pulled. An image is looked for in this order: the Image object with the most specific pattern that fits it; the
/// recipe of a common image such as postgres, nginx or busybox; a path such as ./server or /usr/bin/server; and the program on PATH
/// that is named like the last part of the image's repository.
#[derive(clap::Args)]
#[command(
    override_usage = "SUBCOMMAND",
    after_help = "\
# What is nginx:1.25 here, and why?
kloop image resolve nginx:1.25

# Which recipes are there, and which of their programs has this machine?
kloop image list

# Let the images of a team be a script beside this one
kloop image set registry.example.com/team/web --entrypoint './web.py --port 8080'"
)]
pub struct Args {
    #[command(subcommand)]
    verb: ImageVerb,
}

#[derive(Subcommand)]
enum ImageVerb {
    List(list::Args),
    Resolve(resolve::Args),
    Set(Box<set::Args>),
}

/// Runs the verb.
pub fn run(args: Args, context: &mut CommandContext) -> CliResult {
    match args.verb {
        ImageVerb::List(args) => list::run(args, context),
        ImageVerb::Resolve(args) => resolve::run(args, context),
        ImageVerb::Set(args) => set::run(*args, context),
    }
}
