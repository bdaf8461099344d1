//! Recipes: built-in Image objects of common images. Each is one file of `fixtures/images/`.
//!
//! A recipe matches images of every registry whose repository ends with its name. Image objects take precedence. A new
//! recipe needs a file there and its name in the table here. Start reading at [`find_by_image`].

use super::{Image, pattern, reference};
use crate::kinds::catalogue::typed;
use crate::object::{Object, yaml};
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

macro_rules! files {
    ($($name:literal)*) => {
        &[$(($name, include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/images/", $name, ".yaml")))),*]
    };
}

/// Name and text of every recipe.
const FILES: &[(&str, &str)] = files! {
    "busybox" "caddy" "debian" "etcd" "golang" "haproxy" "httpd" "memcached" "minio" "mongo" "mysql" "nginx" "node" "openjdk" "pause" "php"
    "postgres" "python" "rabbitmq" "redis" "ruby" "traefik"
};

/// One recipe.
pub struct Recipe {
    /// The name of the recipe and its object.
    pub name: &'static str,
    /// The file, including its descriptive comment.
    pub text: &'static str,
    /// The object.
    pub object: Object,
    /// The decoded object.
    pub image: Arc<Image>,
}

struct Recipes {
    all: Vec<Recipe>,
    by_repository: HashMap<String, usize>,
}

static RECIPES: LazyLock<Recipes> = LazyLock::new(|| {
    let all: Vec<Recipe> = FILES.iter().filter_map(|(name, text)| read(name, text)).collect();
    let mut by_repository = HashMap::new();
    for (index, recipe) in all.iter().enumerate() {
        let ends = recipe.image.spec.patterns.iter().filter_map(|pattern| pattern.strip_prefix("*/"));
        by_repository.extend(ends.map(|end| (end.to_owned(), index)));
    }
    Recipes { all, by_repository }
});

fn read(name: &'static str, text: &'static str) -> Option<Recipe> {
    let object = Object(yaml::documents(text).ok()?.into_iter().next()?.value);
    let image = Arc::new(typed::view::<Image>(&object).ok()?);
    Some(Recipe { name, text, object, image })
}

/// Every recipe, by name.
pub fn builtin_recipes() -> &'static [Recipe] {
    &RECIPES.all
}

/// Returns the recipe with this name, or for this image.
pub fn named(name: &str) -> Option<&'static Recipe> {
    builtin_recipes().iter().find(|recipe| recipe.name == name).or_else(|| find_by_image(name))
}

/// Returns the recipe for an image.
pub fn find_by_image(image: &str) -> Option<&'static Recipe> {
    let is_image = !pattern::is_path(image) && reference::parse(image).is_ok();
    let end = reference::name(image);
    RECIPES.by_repository.get(end).filter(|_| is_image).map(|index| &RECIPES.all[*index])
}

#[cfg(test)]
mod tests {
    use super::super::KIND;
    use super::*;

    #[test]
    fn every_recipe_is_a_valid_object_of_its_name() {
        assert_eq!(builtin_recipes().len(), FILES.len());
        for recipe in builtin_recipes() {
            let Recipe { name, text, object, image } = recipe;
            assert!(text.starts_with(&format!("# {name}: ")), "{name} begins with its description");
            assert_eq!(object.name(), *name);
            let mut unknown = Vec::new();
            let stored = (KIND.normalize)(&object.0, &mut |field| unknown.push(field.complaint())).expect(name);
            assert_eq!(unknown, [""; 0], "{name}");
            assert!((KIND.validate)(&Object(stored), None).is_empty(), "{name}");
            let is_simple =
                |pattern: &String| pattern.strip_prefix("*/").is_some_and(|end| !end.contains(['*', '/', ':', '@']));
            assert!(image.spec.patterns.iter().all(is_simple), "{name}: a recipe matches */NAME");
            assert!(image.spec.entrypoint.is_some() && image.spec.command.is_some(), "{name}");
            assert!(image.spec.programs.is_some(), "{name} names its programs");
            assert!(
                image.spec.build.is_none() && image.spec.watch.is_none() && image.spec.filesystem.is_none(),
                "{name}"
            );
        }
        let sorted = builtin_recipes().windows(2).all(|pair| pair[0].name < pair[1].name);
        assert!(sorted, "the table is sorted");
    }

    #[test]
    fn recipe_is_found_by_the_end_of_the_repository() {
        let table = [
            ("postgres", Some("postgres")),
            ("postgres:16-alpine", Some("postgres")),
            ("docker.io/library/postgres:16", Some("postgres")),
            ("registry.example.com:5000/team/redis@sha256:0123456789abcdef0123456789abcdef", Some("redis")),
            ("nginxinc/nginx-unprivileged:1.27", Some("nginx")),
            ("mariadb:11", Some("mysql")),
            ("registry.k8s.io/nginx-slim:0.24", Some("nginx")),
            ("team/postgres-backup", None),
            ("./postgres", None),
            ("/usr/bin/redis", None),
            ("Postgres", None),
        ];
        for (image, name) in table {
            assert_eq!(find_by_image(image).map(|recipe| recipe.name), name, "{image}");
        }
    }
}
