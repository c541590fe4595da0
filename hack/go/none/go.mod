module k8s.io/none

go 1.24.0
