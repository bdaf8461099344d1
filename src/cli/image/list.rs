//! `kloop image list`: Image objects, and the images that are known without one.

use crate::apiserver::read::{self, Wanted};
use crate::cli::flags::PrintFlags;
use crate::cli::{Context, Outcome};
use crate::kinds::image::KIND;
use crate::object::Object;
use crate::runtime::image::{BUILT_IN, BuiltIn};
use crate::show::print::{Format, Printer};
use crate::show::table::{self, Table};
use serde_json::json;

/// The label of images that are known without an object.
const LABEL: &str = "kloop.dev/built-in";

/// List Image objects and the images that kloop knows by itself.
///
/// The built-in ones come last and have no age. Image objects take precedence over them.
#[derive(clap::Args)]
#[command(
    override_usage = "",
    after_help = "\
# List all images
kloop image list

# Print them as objects, to begin one's own with
kloop image list -o yaml"
)]
pub struct Args {
    #[command(flatten)]
    print: PrintFlags,
    /// When using the default or custom-column output format, don't print headers (default print headers).
    #[arg(long)]
    no_headers: bool,
}

/// Runs the verb.
pub fn run(args: Args, context: &mut Context) -> Outcome {
    let mut images = context.look(|ledger| read::list(ledger, &KIND, None, &Wanted::default()))?;
    images.extend(BUILT_IN.iter().map(object));
    match args.print.format(args.no_headers, true)?.unwrap_or(Format::Table { wide: false }) {
        Format::Table { wide } => {
            let options = table::Options { no_headers: args.no_headers, wide, ..table::Options::default() };
            let table = Table::of(KIND.resource.0, &images, context.now());
            let text = table::Printer::new(options).print(&table, &KIND.qualified_singular(), false);
            context.print(&text)
        }
        format => {
            let mut printer = Printer::new(format, args.print.show_managed_fields);
            let text = printer.list(images.into_iter().map(|image| image.0).collect())?;
            context.print(&text)
        }
    }
}

/// The object that would say the same.
fn object(image: &BuiltIn) -> Object {
    let program = &image.programs[..1];
    let spec = match image.is_bare {
        true => json!({"patterns": [format!("*/{}", image.name)], "entrypoint": [], "command": program}),
        false => {
            json!({"patterns": [format!("*/{}", image.name)], "entrypoint": program, "command": image.command})
        }
    };
    Object(json!({
        "apiVersion": KIND.api_version(), "kind": KIND.kind,
        "metadata": {"name": image.name, "labels": {LABEL: "true"}}, "spec": spec,
    }))
}
