"""Messages of iris, docker and podman about a container that could not be started."""

from __future__ import annotations

from iris_cli.core.known_causes.rule import Rule

# fmt: off
CONTAINERS = (
    Rule(name="container-runtime", source="https://docs.docker.com/engine/install/linux-postinstall/",
         next="iris ssh {worker}",
         text=("iris: not started: no container runtime can be used",),
         cause="the user of the worker can use neither docker nor podman without a password",
         fix="On the worker, install podman, or add the user to the group docker (sudo usermod -aG docker USER)."),
    Rule(name="image-pull", source="https://docs.docker.com/reference/cli/docker/image/pull/",
         next="iris ssh {worker}",
         text=("iris: not started: docker pull *failed", "iris: not started: podman pull *failed"),
         cause="the image can't be pulled",
         fix="Check the image's name and tag. A private registry needs a login of the worker's user: run docker "
             "login on the worker, or in --setup."),
    Rule(name="image-program", source="https://docs.docker.com/engine/containers/run/#exit-status",
         text=("unable to start container process: exec: *: executable file not found",
               "unable to start container process: exec: *: no such file or directory",
               "OCI runtime attempted to invoke a command that was not found"),
         cause="the image has no such program",
         fix="iris looks the program up in the image and does not use the image's ENTRYPOINT: give the program's path "
             "inside the image, or ship the program with --workdir and write ./PROGRAM."),
)
