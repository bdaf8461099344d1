//! `kloop image list`: lists Image objects and recipes of common images, and whether their programs
//! are installed.

use crate::apiserver::read::{self, ListSelection};
use crate::cli::command_line::flags::PrintFlags;
use crate::cli::{CliResult, CommandContext};
use crate::kinds::catalogue::typed;
use crate::kinds::image::recipe::{self, Recipe};
use crate::kinds::image::{Image, KIND};
use crate::kinds::view::Column;
use crate::object::Object;
use crate::runtime::image::{Environment, programs};
use crate::show::print::{ObjectPrinter, OutputFormat};
use crate::show::table::{self, Table};

/// The label of built-in recipes.
const LABEL: &str = "kloop.dev/built-in";
/// Index of the column that PROGRAM precedes.
const ENTRYPOINT: usize = 2;

/// List Image objects and the recipes of common images.
///
/// Recipes are listed last and have no age. Image objects take precedence over them. PROGRAM is the path
/// of the image's program on the PATH of this command, or the Debian package to install.
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
pub fn run(args: Args, context: &mut CommandContext) -> CliResult {
    let mut images = context.read_view(|txn| read::list(txn, &KIND, None, &ListSelection::default()))?;
    images.extend(recipe::builtin_recipes().iter().map(object));
    match args.print.format(args.no_headers, true)?.unwrap_or(OutputFormat::Table { wide: false }) {
        OutputFormat::Table { wide } => {
            let options = table::TableOptions { no_headers: args.no_headers, wide, ..table::TableOptions::default() };
            let mut table = Table::for_kind(&KIND, &images, context.now());
            let environment = Environment::inherited();
            table.columns.insert(ENTRYPOINT, Column::text("Program"));
            for (row, image) in table.rows.iter_mut().zip(&images) {
                row.cells.insert(ENTRYPOINT, program(image, environment.path()).into());
            }
            let text = table::TablePrinter::new(options).print(&table, &KIND.qualified_singular(), false);
            context.print(&text)
        }
        format => {
            let mut printer = ObjectPrinter::new(format, args.print.show_managed_fields);
            let text = printer.list(images.into_iter().map(|image| image.0).collect())?;
            context.print(&text)
        }
    }
}

/// Returns the path of an image's program.
fn program(image: &Object, path: &str) -> String {
    let Ok(image) = typed::view::<Image>(image) else { return "<unknown>".into() };
    let spec = image.spec;
    let path = programs::search_path(spec.path.as_deref().unwrap_or_default(), path);
    let named = spec.entrypoint.iter().flatten().take(1).cloned().collect();
    let names: Vec<String> = spec.programs.unwrap_or(named);
    let found = names.iter().find_map(|name| programs::find(name, &path));
    match (found, spec.package) {
        (Some(file), _) => file.display().to_string(),
        (None, Some(package)) => format!("<missing: apt-get install {package}>"),
        (None, None) if names.iter().all(|name| name.contains('/')) => {
            names.first().map_or("<none>".into(), String::clone)
        }
        (None, None) => "<missing>".into(),
    }
}

/// Returns a recipe as an Image object.
fn object(recipe: &Recipe) -> Object {
    let mut object = recipe.object.clone();
    object.set(&["metadata", "labels", LABEL], "true");
    object
}
