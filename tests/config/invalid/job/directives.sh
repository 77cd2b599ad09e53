#!/bin/bash
# IRIS --name a-comment
#IRIS: --name a-comment
##IRIS --nonsense

#IRIS --tpu v9z --replicas two
#IRIS --time 1h
#IRIS --tupu v4-8
#IRIS --wait
#IRIS --again train
#IRIS train.py
#IRIS --setup "pip install
#IRIS --env IRIS_TEST_NO_SUCH_VARIABLE -e =x
#IRIS --label team
#IRIS --cpu 1
#IRIS --cpu=2  # a comment
#IRIS --force=yes --timeout
#IRIS --priority urgent -c pool=a -c "pool in"
echo '
#IRIS --name too-late
 #IRIS --name indented
'
