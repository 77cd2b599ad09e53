#!/bin/sh
# Install the tools that the tests need, such as real OpenSSH servers and several shells. This works only as root on
# Debian. On other machines, tests are skipped if their tools are missing.
set -eu
{
  missing=
  [ -x /usr/sbin/sshd ] || command -v sshd >/dev/null 2>&1 || missing="$missing openssh-server"
  command -v ssh >/dev/null 2>&1 || missing="$missing openssh-client"
  command -v busybox >/dev/null 2>&1 || missing="$missing busybox"
  command -v dash >/dev/null 2>&1 || missing="$missing dash"
  command -v ps >/dev/null 2>&1 || missing="$missing procps"
  if [ "$(uname)" = Linux ]; then
    command -v ip >/dev/null 2>&1 || missing="$missing iproute2"
    command -v strace >/dev/null 2>&1 || missing="$missing strace"
    command -v podman >/dev/null 2>&1 || missing="$missing podman"
    command -v runc >/dev/null 2>&1 || command -v crun >/dev/null 2>&1 || missing="$missing runc"
    if [ "$(id -u)" = 0 ]; then # tests start a local Slurm cluster only as root
      [ -x /usr/sbin/slurmctld ] || missing="$missing slurm-wlm"
      [ -x /usr/sbin/munged ] || missing="$missing munge"
    fi
  fi
  if [ -n "$missing" ]; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
      apt-get update -qq
      # shellcheck disable=SC2086 # a list of package names
      DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
    else
      echo "note: not installed, so some tests are skipped:$missing"
    fi
  fi
  exit
}
