package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// describeMachine says on what the figures were measured.
func describeMachine(ctx context.Context, pgbin string) string {
	server := "PostgreSQL"
	if out, err := exec.CommandContext(ctx, filepath.Join(pgbin, "postgres"), "--version").Output(); err == nil {
		server = strings.TrimSpace(string(out))
	}
	return fmt.Sprintf("%s, %d cores, %s memory; %s; %s", field("/proc/cpuinfo", "model name"), runtime.NumCPU(),
		gigabytes(field("/proc/meminfo", "MemTotal")), server, runtime.Version())
}

// field is the value of the first line "name: value" of a file; "unknown" without one.
func field(path, name string) string {
	f, err := os.Open(path)
	if err != nil {
		return "unknown"
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if key, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

func gigabytes(text string) string {
	kb, err := strconv.ParseFloat(strings.TrimSuffix(text, " kB"), 64)
	if err != nil {
		return text
	}
	return fmt.Sprintf("%.0f GB", kb/(1<<20))
}

func loadAverage() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Join(strings.Fields(string(text))[:3], " ")
}

// clockTicks is the unit of /proc's CPU times, 100 a second on every Linux that Go runs on (USER_HZ).
const clockTicks = 100

// cpuSeconds is what a process has used so far.
func cpuSeconds(pid int) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	after := text[strings.LastIndexByte(string(text), ')')+1:] // the name may hold anything
	fields := strings.Fields(string(after))
	if len(fields) < 13 {
		return 0, errors.New("short /proc stat")
	}
	user, err1 := strconv.ParseFloat(fields[11], 64)
	system, err2 := strconv.ParseFloat(fields[12], 64)
	return (user + system) / clockTicks, errors.Join(err1, err2)
}

// ownCPUSeconds is what this process has used so far.
func ownCPUSeconds() float64 {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}

// residentMegabytes splits a process's resident memory: what is its own, and what it maps from files.
func residentMegabytes(pid int) (anonymous, mapped float64) {
	path := fmt.Sprintf("/proc/%d/status", pid)
	read := func(name string) float64 {
		kb, _ := strconv.ParseFloat(strings.TrimSuffix(field(path, name), " kB"), 64)
		return kb / 1024
	}
	return read("RssAnon"), read("RssFile")
}

// postgresPrograms finds the directory of PostgreSQL's programs, as the harness does.
func postgresPrograms() (string, error) {
	dirs := []string{os.Getenv("PGMIRROR_PG_BIN")}
	if dirs[0] == "" {
		installed, err := filepath.Glob("/usr/lib/postgresql/*/bin")
		if err != nil {
			return "", err
		}
		slices.Reverse(installed) // the newest first
		dirs = installed
		if path, err := exec.LookPath("pg_recvlogical"); err == nil {
			dirs = append(dirs, filepath.Dir(path))
		}
	}
	for _, dir := range dirs {
		if _, err := os.Stat(filepath.Join(dir, "pg_recvlogical")); err == nil {
			return dir, nil
		}
	}
	return "", errors.New("pg_recvlogical is not installed")
}

// runOn keeps this process, and what it starts from now on, on some processors, a list as taskset takes it.
func runOn(ctx context.Context, processors string) error {
	// Each of its threads; a second time because one may have come meanwhile from one that was not there yet.
	for range 2 {
		if out, err := exec.CommandContext(ctx, "taskset", "-acp", processors, strconv.Itoa(os.Getpid())).CombinedOutput(); err != nil {
			return fmt.Errorf("run on processors %s: %w\n%s", processors, err, out)
		}
	}
	return nil
}
