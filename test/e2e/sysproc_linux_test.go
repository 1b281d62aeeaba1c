package e2e

import "syscall"

// childProc makes a process of ours end with us even when a test run is killed.
func childProc() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
