//! Tables of `top`: usage of pods, containers and nodes in kubectl's columns.

use super::columns::{TABLE, align};
use crate::world::usage::Usage;

/// Usage of a pod.
pub struct PodUsage {
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name.
    pub name: String,
    /// Usage of each container, by name.
    pub containers: Vec<(String, Usage)>,
}

impl PodUsage {
    /// Returns the sum of the containers' usage.
    pub fn usage(&self) -> Usage {
        self.containers.iter().fold(Usage::default(), |mut sum, (_, usage)| {
            sum.add(*usage);
            sum
        })
    }
}

/// Usage of a node.
pub struct NodeUsage {
    /// The node's name.
    pub name: String,
    /// The usage; `None` if it is unknown.
    pub usage: Option<Usage>,
    /// Capacity.
    pub capacity: Usage,
}

/// Sort order of rows: by a resource in descending order, or by name.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum UsageSort {
    /// By name.
    Name,
    /// By CPU.
    Cpu,
    /// By memory.
    Memory,
}

impl UsageSort {
    /// Parses the value of `--sort-by`.
    pub fn parse(text: &str) -> Option<UsageSort> {
        [("", UsageSort::Name), ("cpu", UsageSort::Cpu), ("memory", UsageSort::Memory)]
            .into_iter()
            .find_map(|(word, order)| (word == text).then_some(order))
    }

    fn sort<T>(self, rows: &mut [T], name: impl Fn(&T) -> String, usage: impl Fn(&T) -> Usage) {
        rows.sort_by_key(&name);
        match self {
            UsageSort::Name => {}
            UsageSort::Cpu => rows.sort_by_key(|row| std::cmp::Reverse(usage(row).cpu_milli)),
            UsageSort::Memory => rows.sort_by_key(|row| std::cmp::Reverse(usage(row).memory)),
        }
    }
}

/// Settings for the table of pods.
pub struct UsageOptions {
    /// Omits the line of column names.
    pub no_headers: bool,
    /// Adds the namespace as the first column.
    pub with_namespace: bool,
    /// Prints a row for each container.
    pub containers: bool,
    /// Adds the sum of all rows.
    pub sum: bool,
    /// Adds swap usage.
    pub swap: bool,
    /// The order of rows.
    pub order: UsageSort,
}

/// Formats the table of pods.
pub fn pods(mut pods: Vec<PodUsage>, options: &UsageOptions) -> String {
    let name = |pod: &PodUsage| match options.with_namespace {
        true => format!("{}\0{}", pod.namespace, pod.name),
        false => pod.name.clone(),
    };
    options.order.sort(&mut pods, name, PodUsage::usage);
    let mut lines = Vec::new();
    let before: &[&str] = match (options.with_namespace, options.containers) {
        (true, true) => &["NAMESPACE", "POD"],
        (true, false) => &["NAMESPACE"],
        (false, true) => &["POD"],
        (false, false) => &[],
    };
    if !options.no_headers {
        let swap = options.swap.then_some("SWAP(bytes)");
        lines.push(line(before.iter().copied().chain(["NAME", "CPU(cores)", "MEMORY(bytes)"]).chain(swap)));
    }
    let mut total = Usage::default();
    let swap = |usage: Usage| options.swap.then(|| megabytes(usage.swap));
    for pod in &mut pods {
        total.add(pod.usage());
        let namespace = options.with_namespace.then_some(&*pod.namespace);
        if options.containers {
            options.order.sort(&mut pod.containers, |(name, _)| name.clone(), |(_, usage)| *usage);
            for (container, usage) in &pod.containers {
                let (cells, swap) = ([&*pod.name, container, &cpu(*usage), &memory(*usage)], swap(*usage));
                lines.push(line(namespace.into_iter().chain(cells).chain(swap.as_deref())));
            }
        } else {
            let usage = pod.usage();
            let (cells, swap) = ([&*pod.name, &cpu(usage), &memory(usage)], swap(usage));
            lines.push(line(namespace.into_iter().chain(cells).chain(swap.as_deref())));
        }
    }
    if options.sum {
        let blank = || std::iter::repeat_n("", before.len() + 1);
        lines.push(line(blank().chain(["________", "________"]).chain(options.swap.then_some("________"))));
        lines.push(line(blank().chain([&*cpu(total), &memory(total)]).chain(swap(total).as_deref())));
    }
    align(&lines.concat(), TABLE)
}

/// Formats the table of nodes.
pub fn nodes(mut nodes: Vec<NodeUsage>, order: UsageSort, no_headers: bool, swap: bool) -> String {
    order.sort(&mut nodes, |node| node.name.clone(), |node| node.usage.unwrap_or_default());
    // Nodes without known usage are last.
    nodes.sort_by_key(|node| node.usage.is_none());
    let mut lines = Vec::new();
    if !no_headers {
        let more: &[&str] = if swap { &["SWAP(bytes)", "SWAP(%)"] } else { &[] };
        lines.push(line(["NAME", "CPU(cores)", "CPU(%)", "MEMORY(bytes)", "MEMORY(%)"].iter().chain(more).copied()));
    }
    let part = |used: i64, all: i64| if all > 0 { format!("{}%", used.saturating_mul(100) / all) } else { "0%".into() };
    for NodeUsage { name, usage, capacity } in &nodes {
        lines.push(match usage {
            Some(usage) => {
                let parts = (part(usage.cpu_milli, capacity.cpu_milli), part(usage.memory, capacity.memory));
                let swapped = (megabytes(usage.swap), part(usage.swap, capacity.swap));
                let more = if swap { vec![&*swapped.0, &*swapped.1] } else { Vec::new() };
                line([&**name, &cpu(*usage), &parts.0, &memory(*usage), &parts.1].into_iter().chain(more))
            }
            None => line([&**name].into_iter().chain(std::iter::repeat_n("<unknown>", if swap { 6 } else { 4 }))),
        });
    }
    align(&lines.concat(), TABLE)
}

fn line<'a>(cells: impl IntoIterator<Item = &'a str>) -> String {
    let mut text: String = cells.into_iter().flat_map(|cell| [cell, "\t"]).collect();
    text.push('\n');
    text
}

fn cpu(usage: Usage) -> String {
    format!("{}m", usage.cpu_milli)
}

fn memory(usage: Usage) -> String {
    megabytes(usage.memory)
}

fn megabytes(bytes: i64) -> String {
    format!("{}Mi", bytes / (1024 * 1024))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(cpu_milli: i64, megabytes: i64) -> Usage {
        Usage { cpu_milli, memory: megabytes << 20, swap: 0 }
    }

    fn shown(options: UsageOptions) -> Vec<String> {
        let pod = |namespace: &str, name: &str, containers: &[(&str, Usage)]| PodUsage {
            namespace: namespace.into(),
            name: name.into(),
            containers: containers.iter().map(|(name, usage)| ((*name).to_owned(), *usage)).collect(),
        };
        let all = vec![
            pod("b", "web", &[("side", usage(1, 30)), ("main", usage(250, 2))]),
            pod("a", "zoo", &[("main", usage(3, 1024))]),
        ];
        // The last cell is padded, too; the comparison ignores that.
        pods(all, &options).lines().map(|line| line.trim_end().to_owned()).collect()
    }

    #[test]
    fn pod_table_is_that_of_kubectl() {
        let plain = || UsageOptions {
            no_headers: false,
            with_namespace: false,
            containers: false,
            sum: false,
            swap: false,
            order: UsageSort::Name,
        };
        let expected = ["NAME   CPU(cores)   MEMORY(bytes)", "web    251m         32Mi", "zoo    3m           1024Mi"];
        assert_eq!(shown(plain()), expected);
        let sum = UsageOptions { sum: true, no_headers: true, order: UsageSort::Memory, ..plain() };
        let expected = [
            "zoo   3m         1024Mi",
            "web   251m       32Mi",
            "      ________   ________",
            "      254m       1056Mi",
        ];
        assert_eq!(shown(sum), expected);
        let each = UsageOptions { containers: true, with_namespace: true, order: UsageSort::Cpu, ..plain() };
        let expected = [
            "NAMESPACE   POD   NAME   CPU(cores)   MEMORY(bytes)",
            "b           web   main   250m         2Mi",
            "b           web   side   1m           30Mi",
            "a           zoo   main   3m           1024Mi",
        ];
        assert_eq!(shown(each), expected);
        let swapped = UsageOptions { swap: true, order: UsageSort::Memory, ..plain() };
        let expected = [
            "NAME   CPU(cores)   MEMORY(bytes)   SWAP(bytes)",
            "zoo    3m           1024Mi          0Mi",
            "web    251m         32Mi            0Mi",
        ];
        assert_eq!(shown(swapped), expected);
    }

    #[test]
    fn node_table_is_that_of_kubectl() {
        let node = |name: &str, usage| NodeUsage { name: name.into(), usage, capacity: self::usage(2000, 1000) };
        let text = nodes(vec![node("a", None), node("b", Some(usage(500, 120)))], UsageSort::Name, false, false);
        let expected = [
            "NAME   CPU(cores)   CPU(%)      MEMORY(bytes)   MEMORY(%)   ",
            "b      500m         25%         120Mi           12%         ",
            "a      <unknown>    <unknown>   <unknown>       <unknown>   ",
        ];
        assert_eq!(text.lines().collect::<Vec<_>>(), expected);
    }
}
