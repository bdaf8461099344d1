//! The steps of the tour.
//!
//! Never: depends on the output of a step before. Start reading at [`STEPS`].

/// One step.
pub struct TourStep {
    /// Its subject.
    pub heading: &'static str,
    /// The text to read first, in lines of at most 80 columns.
    pub text: &'static str,
    /// The command to type.
    pub command: &'static str,
}

/// All steps, in order.
pub const STEPS: &[TourStep] = &[
    TourStep {
        heading: "You declare the desired state",
        text: "\
You store objects that say what should be, and Kubernetes' control loops make
it so. web.yaml asks for a Deployment of two processes.",
        command: "kloop apply -f web.yaml",
    },
    TourStep {
        heading: "Loops make it so",
        text: "\
No command started a process. The deployment controller saw the Deployment and
made a ReplicaSet; the replicaset controller saw that and made two pods; the
scheduler chose a node for each; the kubelet started a process for each.",
        command: "kloop get deployments,replicasets,pods",
    },
    TourStep {
        heading: "Each loop leaves a trace",
        text: "\
Every change is in the history, with the loop that made it. Read it from the
top: one loop's output is the next loop's input.",
        command: "kloop history --limit 12",
    },
    TourStep {
        heading: "Pods are processes",
        text: "\
In kloop a pod is a process of this machine, with its own address. You find it
in ps and top, and can trace, debug and kill it.",
        command: "kloop ps",
    },
    TourStep {
        heading: "Loops repair",
        text: "\
Delete the pods. The replicaset controller compares again: two are wanted, none
is there. It needs to know no more than that.",
        command: "kloop delete pods -l app=web",
    },
    TourStep {
        heading: "And it is as before",
        text: "\
There are two new pods, with new names and process IDs.",
        command: "kloop get pods",
    },
    TourStep {
        heading: "Change the desired state",
        text: "\
Scaling writes one number into the Deployment. The same loops do the rest.",
        command: "kloop scale deployment/web --replicas=4",
    },
    TourStep {
        heading: "Break it",
        text: "\
This machine has no program of this name. The deployment controller starts one
new pod with it, and keeps the old pods until that one is ready.",
        command: "kloop set image deployment/web web=no-such-program",
    },
    TourStep {
        heading: "Where is it stuck?",
        text: "\
Ask how far each object is, which loop is responsible for it, and what to do.
The line with > is the one on which the others wait.",
        command: "kloop why deployment/web",
    },
    TourStep {
        heading: "See a change before it is made",
        text: "\
plan runs the real loops on a copy of the cluster with a simulated machine, and
shows what they would do. Here: the manifest as it was.",
        command: "kloop plan -f web.yaml",
    },
    TourStep {
        heading: "Take it back",
        text: "\
undo takes back the last command, as a new change through the same loops.",
        command: "kloop undo",
    },
    TourStep {
        heading: "End it",
        text: "\
After the Deployment is deleted, the garbage collector deletes what it owned,
and the kubelet ends the processes.",
        command: "kloop delete deployment web",
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::command_line::grammar;

    #[test]
    fn commands_are_known_and_texts_fit_80_columns() {
        for step in STEPS {
            let parsed = grammar::parse(step.command.split_whitespace());
            assert!(parsed.is_ok(), "{}", step.command);
            assert!(step.text.lines().all(|line| line.chars().count() <= 80), "{}", step.heading);
        }
    }
}
