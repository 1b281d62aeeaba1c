//go:build unix && !linux

package harness

import "syscall"

func serverProc(cred *syscall.Credential) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: cred, Setpgid: true}
}

// ChildProc would make a process end with us even when a test run is killed; only Linux can.
func ChildProc() *syscall.SysProcAttr { return nil }

func removeSegment(int) {}
